-- Lock an attempt before each block of rows: a swept or aborted attempt gets no more rows, and one that is being
-- written is not swept. So every row has its attempt. Asynchronous commit: the rows do not survive a crash either.
select id, set_config('synchronous_commit', 'off', true) from tarry.sink_attempt where id = %(attempt)s for key share

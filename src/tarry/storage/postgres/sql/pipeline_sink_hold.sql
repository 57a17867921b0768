-- Before each block of rows: an attempt that was swept or aborted gets no more rows, and while it gets some nobody
-- sweeps it. So no row is ever without its attempt. Nothing here need survive a crash: the rows do not either.
select id, set_config('synchronous_commit', 'off', true) from tarry.sink_attempt where id = %(attempt)s for key share

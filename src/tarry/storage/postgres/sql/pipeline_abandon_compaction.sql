-- A compaction whose run has died. Its parts are still there and still read.
update tarry.archive_batch set state = 'abandoned'
where lake = %(lake)s and state = 'planned' and kind = 'compaction'

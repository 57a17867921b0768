-- Abandon the planned compaction of a dead run. Its parts still exist and are still read.
update tarry.archive_batch set state = 'abandoned'
where lake = %(lake)s and state = 'planned' and kind = 'compaction'

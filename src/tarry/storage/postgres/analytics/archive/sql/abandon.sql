-- Abandon the planned batch of a dead run. Its number is never reused, so late writes of its executors are ignored.
update tarry.archive_batch set state = 'abandoned'
where lake = %(lake)s and state = 'planned'
returning
-- include: analytics/archive/_batch

-- The first day of history in a lake, for queues whose history is incomplete.
select queue as queue_id, before as day from tarry.archive_horizon where lake = %(lake)s

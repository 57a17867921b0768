-- The first day of history in a lake, for queues whose history is incomplete.
select queue, before from tarry.archive_horizon where lake = %(lake)s

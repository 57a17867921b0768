-- Live and dead messages of each queue after the last completed round.
select queue_id, depth, dead from tarry.queue_level where lake = %(lake)s order by queue_id

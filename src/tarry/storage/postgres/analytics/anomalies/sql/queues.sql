-- Queue properties for detectors: all queues, including deleted ones, since the archive contains their events.
select id as queue_id, name as queue, max_attempts, created_at, deleted_at, journal::text as journaled
from tarry.queue order by id

-- Queue properties for detectors: all queues, including deleted ones, since the archive contains their events.
select id, name, max_attempts, created_at, deleted_at, journal::text from tarry.queue order by id

-- What detectors must know of queues: all there ever were, since the archive reaches back.
select id, name, max_attempts, created_at, deleted_at, journal::text from tarry.queue order by id

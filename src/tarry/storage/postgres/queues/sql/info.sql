-- One queue, or all of them by name.
select name, extract(epoch from lease_for)::float8, max_attempts, retry, journal::text,
    extract(epoch from retention_for)::float8, extract(epoch from target_lag_for)::float8, created_at, paused_at, paused_reason
from tarry.queue
where deleted_at is null and (%(name)s::text is null or name = %(name)s)
order by name collate "C"

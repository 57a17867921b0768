-- Terminate a session of this program, and wait for its end if a time is given. No row if it has ended. The start time
-- distinguishes it from a later process with the same pid.
select case when %(within_ms)s::bigint = 0 then pg_terminate_backend(pid)
    else pg_terminate_backend(pid, %(within_ms)s::bigint) end
from pg_stat_activity
where pid = %(pid)s::int and backend_start = %(started_at)s::timestamptz

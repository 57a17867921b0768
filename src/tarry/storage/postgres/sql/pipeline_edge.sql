-- A snapshot of everything committed and flushed. Leases commit asynchronously: a crash could lose leases that a reader
-- has seen, and their transaction ids would be assigned again, to events that the reader would consider read. Therefore
-- this statement writes a WAL record and commits synchronously, which flushes all earlier commits. A standby has
-- received only what its primary has flushed.
select pg_current_snapshot()::text,
    case when not pg_is_in_recovery() then
        set_config('synchronous_commit',
            replace(current_setting('synchronous_commit'), 'off', 'on'), true)
        || pg_logical_emit_message(true, 'tarry', 'edge')::text
    end

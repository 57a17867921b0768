-- Everything committed until now, and flushed. Leases commit without waiting for the disk: what a reader has seen of them
-- could be lost in a crash, and their transaction numbers given out again, to events that the reader would believe to
-- have read. So this writes a little WAL of its own and waits for it: what was committed before is then on disk too.
-- A standby has received only what its primary flushed.
select pg_current_snapshot()::text,
    case when not pg_is_in_recovery() then
        set_config('synchronous_commit',
            replace(current_setting('synchronous_commit'), 'off', 'on'), true)
        || pg_logical_emit_message(true, 'tarry', 'edge')::text
    end

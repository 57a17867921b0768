-- Where the journal is now, and which one it is: those who follow it begin here. On disk, as pipeline_edge says: a position
-- outlives a crash of the server, so what lies before it must do so, too.
select pg_current_snapshot()::text,
    (select system_identifier::text || '.' || d.oid::text
        from pg_control_system() cross join pg_database d where d.datname = current_database()),
    case when not pg_is_in_recovery() then
        set_config('synchronous_commit',
            replace(current_setting('synchronous_commit'), 'off', 'on'), true)
        || pg_logical_emit_message(true, 'tarry', 'edge')::text
    end

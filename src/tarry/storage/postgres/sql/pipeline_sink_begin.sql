-- Note a write under its name, or find it there, and lock it: two drivers that commit one write take turns, and the
-- second one finds it committed. A write that was aborted may begin again; a committed one stays so.
insert into tarry.sink_write as w (write_id, state, started_at, stream, batch)
values (%(write_id)s, 'staging', clock_timestamp(), %(stream)s, %(batch)s)
on conflict (write_id) do update set state = case w.state when 'committed' then w.state else 'staging' end
returning id, write_id, state, rows, created, updated, ignored, superseded, committed_at

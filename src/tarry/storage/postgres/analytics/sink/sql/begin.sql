-- Register a write by its id, or find it, and lock its row: of two drivers that commit one write, the second waits and
-- finds it committed. An aborted write may begin again; a committed one stays committed.
insert into tarry.sink_write as w (write_id, state, started_at, stream, batch)
values (%(write_id)s, 'staging', clock_timestamp(), %(stream)s, %(batch)s)
on conflict (write_id) do update set state = case w.state when 'committed' then w.state else 'staging' end
returning
-- include: analytics/sink/_write

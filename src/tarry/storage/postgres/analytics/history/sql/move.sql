-- Move the head of a lake's history. Compare-and-set: a run that finds another head than it started from fails.
insert into tarry.trace_head as h (lake, position, snapshot, system_id, run_id, traced_at)
select %(lake)s, %(position)s, %(snapshot)s, %(system_id)s, %(run_id)s, clock_timestamp()
where %(before)s::bigint is null or exists (select from tarry.trace_head where lake = %(lake)s and run_id = %(before)s)
on conflict (lake) do update
set (position, snapshot, system_id, run_id, traced_at)
    = (excluded.position, excluded.snapshot, excluded.system_id, excluded.run_id, excluded.traced_at)
where h.run_id = %(before)s
returning run_id

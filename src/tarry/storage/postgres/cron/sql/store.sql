-- Store schedules whose revision is still the one that was read, and new ones whose name is free. One statement locks, compares
-- and writes, in name order. Revisions come from a sequence: a schedule that was removed and installed again does not match the
-- old revision, and one that was removed concurrently is not stored.
with wanted as materialized (
    select * from jsonb_populate_recordset(null::tarry.schedule, %(rows)s::jsonb)
), there as materialized (
    select s.name from tarry.schedule s
    where s.name = any (array(select name from wanted))
      and s.revision = (%(expected)s::jsonb ->> s.name)::bigint
    order by s.name
    for update
)
insert into tarry.schedule as s
select r.name, r.hash, r.kind, r.text, r.zone, r.queue, r.payload, r.content_type, r.priority, r.type, r.misfire,
    r.catch_up_for, r.grace_for, r.overlap, r.jitter_for, r.in_advance_for, r.start_at, r.end_at, r.source, r.generation,
    nextval('tarry.version_seq'), r.cursor_at, r.wake_at, r.decided_at, r.installed_at, r.paused_at, r.paused_reason
from wanted r
where %(expected)s::jsonb ->> r.name is null or r.name = any (array(select name from there))
order by r.name
on conflict (name) do update
set hash = excluded.hash, kind = excluded.kind, text = excluded.text, zone = excluded.zone, queue = excluded.queue,
    payload = excluded.payload, content_type = excluded.content_type, priority = excluded.priority, type = excluded.type,
    misfire = excluded.misfire, catch_up_for = excluded.catch_up_for, grace_for = excluded.grace_for,
    overlap = excluded.overlap, jitter_for = excluded.jitter_for, in_advance_for = excluded.in_advance_for,
    start_at = excluded.start_at, end_at = excluded.end_at, source = excluded.source, generation = excluded.generation,
    revision = excluded.revision, cursor_at = excluded.cursor_at, wake_at = excluded.wake_at,
    decided_at = excluded.decided_at, installed_at = excluded.installed_at, paused_at = excluded.paused_at,
    paused_reason = excluded.paused_reason
where s.revision = (%(expected)s::jsonb ->> excluded.name)::bigint
returning s.name

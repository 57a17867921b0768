-- Store schedules where they still have the revision that was read; a new one only where there is none. One statement
-- locks, compares and writes, in the order of names. Revisions come from a sequence: a schedule that was removed and
-- installed again is not taken for the old one, and one that was removed meanwhile is not stored.
with wanted as materialized (
    select * from jsonb_populate_recordset(null::tarry.schedule, %(rows)s::jsonb)
), there as materialized (
    select s.prefix from tarry.schedule s
    where s.prefix = any (array(select prefix from wanted))
      and s.revision = (%(expected)s::jsonb ->> s.prefix)::bigint
    order by s.prefix
    for update
)
insert into tarry.schedule as s
select r.prefix, r.hash, r.kind, r.text, r.zone, r.queue, r.payload, r.content_type, r.priority, r.type, r.misfire,
    r.catch_up_for, r.grace_for, r.overlap, r.jitter_for, r.in_advance_for, r.start_at, r.end_at, r.source, r.generation,
    nextval('tarry.version_seq'), r.cursor_at, r.wake_at, r.ruled_at, r.installed_at, r.paused_at, r.paused_reason
from wanted r
where %(expected)s::jsonb ->> r.prefix is null or r.prefix = any (array(select prefix from there))
order by r.prefix
on conflict (prefix) do update
set hash = excluded.hash, kind = excluded.kind, text = excluded.text, zone = excluded.zone, queue = excluded.queue,
    payload = excluded.payload, content_type = excluded.content_type, priority = excluded.priority, type = excluded.type,
    misfire = excluded.misfire, catch_up_for = excluded.catch_up_for, grace_for = excluded.grace_for,
    overlap = excluded.overlap, jitter_for = excluded.jitter_for, in_advance_for = excluded.in_advance_for,
    start_at = excluded.start_at, end_at = excluded.end_at, source = excluded.source, generation = excluded.generation,
    revision = excluded.revision, cursor_at = excluded.cursor_at, wake_at = excluded.wake_at,
    ruled_at = excluded.ruled_at, installed_at = excluded.installed_at, paused_at = excluded.paused_at,
    paused_reason = excluded.paused_reason
where s.revision = (%(expected)s::jsonb ->> excluded.prefix)::bigint
returning s.prefix

-- Schedules with where their planning stands: one, or all of them by prefix. Whether the last message is still live is
-- looked up only where overlaps are skipped. Relies on the primary key, tick_once and message_key.
select s.prefix, s.hash, s.kind, s.text, s.zone, s.queue, s.payload, s.content_type, s.priority, s.type, s.misfire,
    extract(epoch from s.catch_up_for)::float8, extract(epoch from s.grace_for)::float8, s.overlap,
    extract(epoch from s.jitter_for)::float8, extract(epoch from s.in_advance_for)::float8, s.start_at, s.end_at, s.source,
    s.generation, s.revision, s.cursor_at, s.wake_at, s.ruled_at, s.installed_at, s.paused_at, s.paused_reason,
    s.overlap = 'skip' and exists (
        select from (
            select t.queue, t.key from tarry.tick t
            where t.prefix = coalesce(s.ledger, s.prefix) and t.until is null and t.key is not null and t.verdict <> 'withdrawn'
            order by t.prefix, t.tick desc limit 1) l
        join tarry.message m on m.key = l.key and m.queue = l.queue),
    (select max(f.until) from tarry.tick_forgotten f where f.prefix = coalesce(s.ledger, s.prefix)),
    coalesce(s.ledger, s.prefix)
from tarry.schedule s
where %(prefix)s::text is null or s.prefix = %(prefix)s
order by s.prefix

-- Schedules that need a scheduler now, the longest waiting first: their time has come, or they were last ruled at an hour
-- that is yet to come, because the clock was set back. Those whose payloads are made by code only if they are `owned`.
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
from (
    (select * from tarry.schedule
     where wake_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
       and (payload is not null or prefix = any (%(owned)s::text[]))
     order by wake_at limit %(limit)s::int)
    union
    (select * from tarry.schedule
     where ruled_at > coalesce(%(now)s::timestamptz, statement_timestamp()) and wake_at is not null
       and (payload is not null or prefix = any (%(owned)s::text[]))
     order by ruled_at limit %(limit)s::int)
) s
order by s.wake_at, s.prefix
limit %(limit)s::int

-- The columns of `ScheduleState` for a schedule `s`. Whether its last message is still live is looked up only if overlaps are
-- skipped. Relies on tick_once, message_key and the primary key of tick_forgotten.
s.name, s.hash, s.kind, s.text, s.zone, s.queue, s.payload, s.content_type, s.priority, s.type, s.misfire, s.catch_up_for,
s.grace_for, s.overlap, s.jitter_for, s.in_advance_for, s.start_at, s.end_at, s.source, s.generation, s.revision, s.cursor_at,
s.wake_at, s.decided_at, s.installed_at, s.paused_at, s.paused_reason, coalesce(s.ledger, s.name) as ledger,
s.overlap = 'skip' and exists (
    select from (
        select t.queue, t.key from tarry.tick t
        where t.ledger = coalesce(s.ledger, s.name) and t.until is null and t.key is not null and t.verdict <> 'withdrawn'
        order by t.ledger, t.tick desc limit 1) l
    join tarry.message m on m.key = l.key and m.queue = l.queue) as last_live,
(select max(f.until) from tarry.tick_forgotten f where f.ledger = coalesce(s.ledger, s.name)) as forgotten_until

-- Take back the messages of ticks that nobody was ever given: what was leased once belongs to whoever began it, also
-- while it waits for another try. A message that was offered anew by hand has another version, and is left alone.
-- Relies on tick_once and message_key; rows are locked in the order of keys.
with found as materialized (
    select t.prefix, t.hash, t.tick, t.queue, t.key, t.version, w.reason, w.decided_at
    from unnest(%(prefixes)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(reasons)s::text[],
        %(decided)s::timestamptz[]) as w(prefix, hash, tick, reason, decided_at)
    join tarry.tick t on t.prefix = w.prefix and t.tick = w.tick and t.hash = w.hash and t.until is null
    where t.key is not null and t.verdict <> 'withdrawn'
    order by t.key, t.queue
), locked as materialized (
    select m.ctid as place, m.queue, m.key, m.version, m.attempt, m.priority, m.due_at, f.prefix, f.hash, f.tick, f.reason,
        f.decided_at
    from found f join tarry.message m on m.key = f.key and m.queue = f.queue and m.version = f.version and m.attempt = 0
    for update of m
), gone as (
    delete from tarry.message m using locked l where m.ctid = l.place
), noted as (
    update tarry.tick t
    set verdict = 'withdrawn', reason = l.reason, decided_at = l.decided_at
    from locked l
    where t.prefix = l.prefix and t.tick = l.tick and t.hash = l.hash and t.until is null
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
    select 'cron_replaced', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, l.key, l.version, l.attempt,
        l.priority, l.due_at,
        jsonb_build_object('prefix', l.prefix, 'hash', l.hash, 'tick', l.tick, 'reason', l.reason)
    from locked l join tarry.queue q on q.id = l.queue
    where q.journal <> 'off'
)
select l.prefix, l.hash, l.tick from locked l

-- Delete the messages of ticks if they were never leased: a message that was leased once belongs to its consumer, also while it
-- waits for a retry. A message that a user offered again has another version and stays. Deleted by key, not by ctid: a row that
-- was leased and released while this statement waited for another row has a newer row version, which the snapshot does not see
-- but the delete follows to. Ledger and journal use the deleted rows. Relies on tick_once and message_key; rows are locked in key
-- order.
with found as materialized (
    select w.name, w.ledger, t.hash, t.tick, t.queue, t.key, t.version, w.reason, w.decided_at
    from unnest(%(names)s::text[], %(ledgers)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(reasons)s::text[],
        %(decided)s::timestamptz[]) as w(name, ledger, hash, tick, reason, decided_at)
    join tarry.tick t on t.ledger = w.ledger and t.tick = w.tick and t.hash = w.hash and t.until is null
    where t.key is not null and t.verdict <> 'withdrawn'
    order by t.key, t.queue
), locked as materialized (
    select f.*
    from found f join tarry.message m on m.key = f.key and m.queue = f.queue and m.version = f.version and m.attempt = 0
    for update of m
), gone as (
    delete from tarry.message m using locked l
    where m.key = l.key and m.queue = l.queue and m.version = l.version and m.attempt = 0
    returning m.queue, m.key, m.version, m.attempt, m.priority, m.due_at, l.name, l.ledger, l.hash, l.tick, l.reason,
        l.decided_at
), noted as (
    update tarry.tick t
    set verdict = 'withdrawn', reason = g.reason, decided_at = g.decided_at
    from gone g
    where t.ledger = g.ledger and t.tick = g.tick and t.hash = g.hash and t.until is null
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
    select 'cron_replaced', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, g.key, g.version, g.attempt,
        g.priority, g.due_at,
        jsonb_build_object('schedule', g.name, 'hash', g.hash, 'tick', g.tick, 'reason', g.reason)
    from gone g join tarry.queue q on q.id = g.queue
    where q.journal <> 'off'
)
select g.name, g.hash, g.tick from gone g

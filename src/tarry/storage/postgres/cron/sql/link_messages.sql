-- Store the message of a tick in the ledger, and journal that a schedule fired it. In the transaction of the offer: the message
-- is not visible to other transactions yet. Relies on message_key and tick_once.
with made as materialized (
    select p.name, p.ledger, p.hash, p.tick, m.queue, m.key, m.version, m.attempt, m.priority, m.due_at, q.journal
    from unnest(%(names)s::text[], %(ledgers)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(keys)s::text[])
        as p(name, ledger, hash, tick, key)
    cross join tarry.queue q
    join tarry.message m on m.key = p.key and m.queue = q.id
    where q.name = %(queue)s and q.deleted_at is null
), noted as (
    update tarry.tick t
    set queue = m.queue, key = m.key, version = m.version, due_at = m.due_at
    from made m
    where t.ledger = m.ledger and t.tick = m.tick and t.hash = m.hash and t.until is null
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
    select 'cron_planned', coalesce(%(now)s::timestamptz, statement_timestamp()), m.queue, m.key, m.version, m.attempt,
        m.priority, m.due_at, jsonb_build_object('schedule', m.name, 'hash', m.hash, 'tick', m.tick)
    from made m
    where m.journal <> 'off'
)
select count(*) from made

-- Remove ticks from the ledger that were deleted from it before: they were decided once, and may have fired. In a separate
-- statement after `enter_ticks`, which may have waited for the deletion without seeing its record.
-- Relies on the primary key of tick_forgotten and on tick_once.
with forgotten as materialized (
    select d.ledger, d.hash, d.tick
    from unnest(%(ledgers)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(by_instant)s::bool[])
        as d(ledger, hash, tick, by_instant)
    join tarry.tick_forgotten f on f.ledger = d.ledger and (d.by_instant or f.hash = d.hash) and d.tick <= f.until
)
delete from tarry.tick t
using forgotten f
where t.ledger = f.ledger and t.tick = f.tick and t.hash = f.hash and t.until is null
returning t.ledger, t.hash, t.tick

-- Delete a batch of old ledger entries whose messages are not live, and store the last deleted tick: deleted ticks must not fire
-- again. Concurrent callers delete different entries. Relies on tick_over and message_key.
with old as materialized (
    select t.ctid as place from tarry.tick t
    where greatest(t.decided_at, coalesce(t.until, t.tick)) < %(before)s::timestamptz
      and not exists (select from tarry.message m where m.key = t.key and m.queue = t.queue)
    order by greatest(t.decided_at, coalesce(t.until, t.tick))
    limit %(limit)s::int
    for update of t skip locked
), gone as (
    delete from tarry.tick t using old o where t.ctid = o.place
    returning t.ledger, t.hash, coalesce(t.until, t.tick) as until
), noted as (
    insert into tarry.tick_forgotten as f (ledger, hash, until)
    select g.ledger, g.hash, max(g.until) from gone g group by g.ledger, g.hash order by g.ledger, g.hash
    on conflict (ledger, hash) do update set until = greatest(f.until, excluded.until)
)
select count(*) from gone

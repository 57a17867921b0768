-- Give schedules that were just installed a ledger: that which their name and queue had before, or a new one; and store
-- to which queue the ledger of a schedule has moved. The caller has locked their rows, so no other transaction does this
-- for the same schedules. Relies on ledger_owner.
with held as materialized (
    select s.prefix, s.queue, s.ledger, s.installed_at from tarry.schedule s where s.prefix = any (%(prefixes)s::text[])
), known as materialized (
    select distinct on (h.prefix) h.prefix, l.name
    from held h join tarry.ledger l on l.prefix = h.prefix and l.queue = h.queue
    where h.ledger is null
    order by h.prefix, l.installed_at desc, l.name
), made as (
    insert into tarry.ledger (name, prefix, queue, installed_at)
    select case n.before when 0 then h.prefix else rpad('~' || n.before, 201, '~') || h.prefix end,
        h.prefix, h.queue, h.installed_at
    from held h
    cross join lateral (select count(*) as before from tarry.ledger l where l.prefix = h.prefix) n
    where h.ledger is null and not exists (select from known k where k.prefix = h.prefix)
    returning prefix, name
), moved as (
    update tarry.ledger l
    set queue = h.queue, installed_at = h.installed_at
    from held h left join known k on k.prefix = h.prefix
    where l.name = coalesce(h.ledger, k.name)
), adopted as (
    update tarry.schedule s
    set ledger = coalesce(k.name, m.name)
    from held h left join known k on k.prefix = h.prefix left join made m on m.prefix = h.prefix
    where s.prefix = h.prefix and h.ledger is null
)
select h.prefix, coalesce(h.ledger, k.name, m.name) as ledger
from held h left join known k on k.prefix = h.prefix left join made m on m.prefix = h.prefix

-- Assign a ledger to schedules that were just installed: the one that their name and queue had before, or a new one. Also store
-- the queue to which a schedule's ledger has moved. The caller has locked their rows, so no other transaction does this for the
-- same schedules. Relies on ledger_owner.
with held as materialized (
    select s.name as schedule, s.queue, s.ledger, s.installed_at from tarry.schedule s where s.name = any (%(names)s::text[])
), known as materialized (
    select distinct on (h.schedule) h.schedule, l.name
    from held h join tarry.ledger l on l.schedule = h.schedule and l.queue = h.queue
    where h.ledger is null
    order by h.schedule, l.installed_at desc, l.name
), made as (
    insert into tarry.ledger (name, schedule, queue, installed_at)
    select case n.before when 0 then h.schedule else rpad('~' || n.before, 201, '~') || h.schedule end,
        h.schedule, h.queue, h.installed_at
    from held h
    cross join lateral (select count(*) as before from tarry.ledger l where l.schedule = h.schedule) n
    where h.ledger is null and not exists (select from known k where k.schedule = h.schedule)
    returning schedule, name
), moved as (
    update tarry.ledger l
    set queue = h.queue, installed_at = h.installed_at
    from held h left join known k on k.schedule = h.schedule
    where l.name = coalesce(h.ledger, k.name)
), adopted as (
    update tarry.schedule s
    set ledger = coalesce(k.name, m.name)
    from held h left join known k on k.schedule = h.schedule left join made m on m.schedule = h.schedule
    where s.name = h.schedule and h.ledger is null
)
select h.schedule as name, coalesce(h.ledger, k.name, m.name) as ledger
from held h left join known k on k.schedule = h.schedule left join made m on m.schedule = h.schedule

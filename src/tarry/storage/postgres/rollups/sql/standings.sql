-- The counts of all queues, or of one, at most `limit` each, as in queues/counts; the exact totals as of the head; and the number
-- of processes that wait for messages. Relies on message_order, dead_letter_order and the key of waiter. The scans are ordered:
-- otherwise the planner would collect a whole queue in a bitmap first.
with moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
)
select q.name as queue, d.n as due, d.held as due_held, l.n as later, l.held as later_held, x.n as dead,
    coalesce(moment.now - o.due_at, interval '0') as lag, t.live as live_total, t.dead as dead_total, w.n as waiting
from tarry.queue q cross join moment
left join tarry.rollup_total t on t.queue = q.id
cross join lateral (
    select count(*) as n, count(*) filter (where held) as held from (
        select m.held from generate_series(0, 9) as level(priority) cross join lateral (
            select m.lease_until > moment.now as held from tarry.message m
            where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at <= moment.now
            order by m.due_at, m.version limit %(limit)s::int
        ) m limit %(limit)s::int
    ) c
) d
cross join lateral (
    select count(*) as n, count(*) filter (where held) as held from (
        select m.held from generate_series(0, 9) as level(priority) cross join lateral (
            select m.lease_until > moment.now as held from tarry.message m
            where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at > moment.now
            order by m.due_at, m.version limit %(limit)s::int
        ) m limit %(limit)s::int
    ) c
) l
cross join lateral (
    select count(*) as n from (select from tarry.dead_letter where queue = q.id limit %(limit)s::int) c
) x
cross join lateral (
    select min(f.due_at) as due_at from generate_series(0, 9) as level(priority) cross join lateral (
        select c.due_at from (
            select m.due_at, m.lease_until from tarry.message m
            where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at <= moment.now
            order by m.due_at, m.version limit 1000
        ) c where c.lease_until <= moment.now order by c.due_at limit 1
    ) f
) o
cross join lateral (
    select count(distinct process) as n from tarry.waiter where queue = q.id and wakes_at > moment.now
) w
where q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
order by q.name
limit 1000

-- Count the messages of each state at the end of the last complete slice, for every width without such a sample. A message that
-- becomes due writes no event, so events cannot give these numbers. All queues share `limit`: of each queue and priority that
-- many messages are counted before and after now. If only one side has more, it follows from the total; if both have, both are
-- null. Queues without messages have no row; queue 0 has the sums. Relies on message_order and the primary key.
with moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), ended as materialized (
    select w.width, w.until - make_interval(secs => w.width) as start_at, moment.now
    from moment cross join lateral (
        select width, date_bin(make_interval(secs => width), moment.now, 'epoch') as until
        from unnest(array[10, 60, 600, 3600]) as width
    ) w
    where moment.now < w.until + make_interval(secs => greatest(30, w.width / 10)) and not exists (
        select from tarry.rollup_depth d
        where d.width = w.width and d.start_at = w.until - make_interval(secs => w.width) and d.queue = 0)
), q as materialized (
    select id from tarry.queue where deleted_at is null and exists (select from ended)
), share as materialized (
    select greatest(%(least)s::int, %(limit)s::int / greatest(1, count(*)))::int as most from q
), sides as materialized (
    select q.id as queue, d.n as due, d.held as due_held, d.is_full as is_due_full, l.n as later, l.held as later_held,
        l.is_full as is_later_full
    from q cross join moment cross join share
    cross join lateral (
        select sum(c.n)::bigint as n, sum(c.held)::bigint as held, bool_or(c.n >= share.most) as is_full
        from generate_series(0, 9) as level(priority) cross join lateral (
            select count(*) as n, count(*) filter (where m.held) as held from (
                select m.lease_until > moment.now as held from tarry.message m
                where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at <= moment.now
                order by m.due_at, m.version limit share.most
            ) m
        ) c
    ) d
    cross join lateral (
        select sum(c.n)::bigint as n, sum(c.held)::bigint as held, bool_or(c.n >= share.most) as is_full
        from generate_series(0, 9) as level(priority) cross join lateral (
            select count(*) as n, count(*) filter (where m.held) as held from (
                select m.lease_until > moment.now as held from tarry.message m
                where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at > moment.now
                order by m.due_at, m.version limit share.most
            ) m
        ) c
    ) l
    where d.n + l.n > 0
), counted as materialized (
    select s.queue, s.due_held + s.later_held as leased,
        case when not s.is_due_full then s.due - s.due_held
            when not s.is_later_full then greatest(t.live - s.later - s.due_held, s.due - s.due_held) end as ready,
        case when not s.is_later_full then s.later - s.later_held
            when not s.is_due_full then greatest(t.live - s.due - s.later_held, s.later - s.later_held) end as delayed
    from sides s left join tarry.rollup_total t on t.queue = s.queue
)
insert into tarry.rollup_depth (width, start_at, queue, delayed, ready, leased)
select e.width, e.start_at, c.queue, c.delayed, c.ready, c.leased from ended e cross join counted c
union all
select e.width, e.start_at, 0,
    case when count(c.queue) = count(c.delayed) then coalesce(sum(c.delayed), 0) end,
    case when count(c.queue) = count(c.ready) then coalesce(sum(c.ready), 0) end, coalesce(sum(c.leased), 0)
from ended e left join counted c on true
group by e.width, e.start_at
on conflict do nothing

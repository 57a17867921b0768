-- Numbers of delayed, ready, leased and dead messages, at most `limit` per scan. The cost does not depend on the length of the
-- queue, since the scans are ordered (otherwise the planner collects the whole queue in a bitmap first).
-- Due rows come first along message_order and are classified; later rows are only counted. `lag` is the age of the first due row
-- of any priority that is not leased, among the first 10,000 of each. Also returns the positions of the first live messages.
with q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
),
-- include: messages/_live_heads
, moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), due as materialized (
    select d.held from q cross join moment cross join live_head live
    cross join lateral (
        select m.lease_until > moment.now as held
        from tarry.message m
        where (m.queue + 0) = q.id and m.priority = live.priority and m.due_at <= moment.now
          and (m.due_at, m.version) >= (live.due_at, live.version)
        order by m.due_at, m.version limit %(limit)s::int
    ) d
    limit %(limit)s::int
), later as materialized (
    select l.held from q cross join moment cross join generate_series(0, 9) as level(priority)
    cross join lateral (
        select m.lease_until > moment.now as held
        from tarry.message m
        where (m.queue + 0) = q.id and m.priority = level.priority::smallint and m.due_at > moment.now
        order by m.due_at, m.version limit %(limit)s::int
    ) l
    limit %(limit)s::int
), dead as materialized (
    select 1 from q cross join lateral (
        select from tarry.dead_letter where queue = q.id limit %(limit)s::int
    ) d
), oldest as materialized (
    select moment.now - min(o.due_at) as lag
    from q cross join moment cross join live_head live
    cross join lateral (
        select w.due_at from (
            select m.due_at, m.lease_until
            from tarry.message m
            where (m.queue + 0) = q.id and m.priority = live.priority and m.due_at <= moment.now
              and (m.due_at, m.version) >= (live.due_at, live.version)
            order by m.due_at, m.version
            limit 10000
        ) w
        where w.lease_until <= moment.now
        limit 1
    ) o
    group by moment.now
)
select (select count(*) filter (where not held) from later) as delayed,
    (select count(*) filter (where not held) from due) as ready,
    (select count(*) filter (where held) from due) + (select count(*) filter (where held) from later) as leased,
    (select count(*) from dead) as dead, (select count(*) from due) as due, (select count(*) from later) as later,
    coalesce((select lag from oldest), interval '0') as lag,
    (select array_agg(due_at order by priority) from live_head) as live_due_ats,
    (select array_agg(version order by priority) from live_head) as live_versions
from q

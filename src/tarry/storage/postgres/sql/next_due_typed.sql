-- `next_due` for one type: the same, along message_order_by_type, so that the backlog of other types costs nothing.
with q as materialized (
    select id, paused_at from tarry.queue where name = %(queue)s and deleted_at is null
)
select min(greatest(head.due_at, head.lease_until)) - coalesce(%(now)s::timestamptz, clock_timestamp()) as wait_for
from q left join lateral (
    select first.due_at, first.lease_until
    from generate_series(0, 9) as level(priority)
    cross join lateral (
        select m.due_at, m.lease_until
        from tarry.message m
        where (m.queue + 0) = (select id from q) and m.type = %(type)s and m.priority = level.priority::smallint
        order by m.due_at, m.version
        limit 1000
    ) first
) head on q.paused_at is null
group by q.id

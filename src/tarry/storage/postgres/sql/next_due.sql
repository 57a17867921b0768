-- When something may be deliverable: the first row of each priority that nobody holds, or the first lease to run out.
-- One descent per priority along message_order; a paused queue has nothing to wait for. The inner limit bounds the walk
-- over held rows: behind that many, the answer is the earliest of their ends, which is early enough to look again.
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
        where (m.queue + 0) = (select id from q) and m.priority = level.priority::smallint
        order by m.due_at, m.version
        limit 1000
    ) first
) head on q.paused_at is null
group by q.id

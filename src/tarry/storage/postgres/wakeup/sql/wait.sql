-- Announce that a process is about to sleep: return when a message may be deliverable, and store until when the process sleeps,
-- so that an earlier offer notifies it. A concurrent offer may not see the row, nor this statement its message: therefore sleeps
-- start short (core/wakeup). The row is unlogged and renewed in place (HOT). Reads message_order (with `typed`
-- message_order_by_type): per priority the first row that is not leased, and the first lease to expire, among the first thousand
-- rows; if all of these are leased, the result is one scan interval. Also returns the positions of the first live messages.
-- `probe`: a notification to this process itself, as proof that notifications arrive.
with q as materialized (
    select id, paused_at, coalesce(%(now)s::timestamptz, clock_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null
),
-- include: messages/_live_heads
, head as materialized (
    select min(least(free.due_at, held.until)) as due_at, array_agg(live.due_at order by live.priority) as live_due_ats,
        array_agg(live.version order by live.priority) as live_versions
    from live_head live
    left join lateral (
        select walked.due_at
        from (
            select m.due_at, m.lease_until
            from tarry.message m
            where (m.queue + 0) = (select id from q where paused_at is null)
              -- typed: and m.type = %(type)s
              and m.priority = live.priority
              and (m.due_at, m.version) >= (live.due_at, live.version)
            order by m.due_at, m.version
            limit 1000
        ) walked
        where walked.lease_until <= (select now from q)
        limit 1
    ) free on true
    left join lateral (
        select least(min(walked.lease_until) filter (where walked.lease_until > (select now from q)),
            case when count(*) = 1000 then (select now from q) + %(scan_every)s::interval end) as until
        from (
            select m.lease_until
            from tarry.message m
            where (m.queue + 0) = (select id from q where paused_at is null)
              -- typed: and m.type = %(type)s
              and m.priority = live.priority
              and (m.due_at, m.version) >= (live.due_at, live.version)
              and m.due_at <= (select now from q) and (free.due_at > (select now from q)) is not false
            order by m.due_at, m.version
            limit 1000
        ) walked
    ) held on true
), asleep as (
    insert into tarry.waiter as w (queue, type, process, wakes_at)
    select q.id, coalesce(%(type)s::text, ''), %(process)s::text, least(head.due_at, q.now + %(keep_for)s::interval)
    from q cross join head
    where %(process)s::text is not null and (head.due_at is null or head.due_at > q.now)
    on conflict (queue, type, process) do update set wakes_at = excluded.wakes_at, renewed_at = excluded.renewed_at
), probed as materialized (
    select pg_notify('tarry', %(probe)s::text) where %(probe)s::text is not null
)
select head.due_at - q.now as due_in, (select count(*) from probed) as probed, head.live_due_ats, head.live_versions
from q cross join head

-- Live messages by the minute in which they come due; those already due have no minute and are split into ready and
-- leased. One pass over the live table, at one instant. Every queue has at least one row.
with load as materialized (
    select m.queue, case when m.due_at > %(now)s then date_trunc('minute', m.due_at, 'UTC') end as minute,
        count(*) as messages, count(*) filter (where m.attempt > 0) as retries,
        count(*) filter (where m.lease_until > %(now)s) as leased
    from tarry.message m
    where m.due_at < %(until)s
    group by 1, 2
)
select q.id as queue_id, q.name as queue, extract(epoch from q.target_lag_for)::float8 as target_lag_s,
    q.paused_at is not null as paused, l.minute, l.messages, l.retries,
    case when l.minute is null then coalesce(l.messages - l.leased, 0) else 0 end as ready,
    case when l.minute is null then coalesce(l.leased, 0) else 0 end as leased
from tarry.queue q left join load l on l.queue = q.id
where q.deleted_at is null
order by q.id, l.minute nulls first

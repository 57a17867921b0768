-- The end of an ack: what it deleted, journaled and counted. No row if the queue does not exist: `having` costs less than a group.
    returning m.key, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer,
        coalesce(%(now)s::timestamptz, clock_timestamp()) as at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'acked', d.at, q.id, d.key, d.version, d.attempt, d.priority, d.due_at, d.leased_at, d.lease_until, d.consumer
    from q cross join done d
    where q.journal <> 'off'
)
select
    -- include: messages/_settled
from q left join done d on true
having count(*) > 0 -- many

-- The second half of an ack: journal and count the deleted messages. No row if the queue does not exist: `having` costs less than
-- a group. The single-message variant returns no row if the message was not settled.
    returning m.key, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer,
        -- one: q.id as queue, q.journal,
        coalesce(%(now)s::timestamptz, clock_timestamp()) as at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'acked', d.at, q.id, d.key, d.version, d.attempt, d.priority, d.due_at, d.leased_at, d.lease_until, d.consumer
    from q cross join done d -- many
    -- one: from done d cross join lateral (select d.queue as id, d.journal) q
    where q.journal <> 'off'
)
select
    -- include: messages/_settled
from q left join done d on true -- many
-- one: from done d
having count(*) > 0 -- many

-- The columns of a message `m` that a search compares.
m.key, m.queue, m.version, m.due_at, m.created_at, m.priority, m.attempt, m.type, m.last_error,
case when m.token is not null then m.consumer end as consumer,
case when %(trace)s::text is not null then lower(substr(m.headers ->> 'traceparent', 4, 32)) end as trace,
case when m.lease_until > moment.now then m.leased_at else moment.now end - m.due_at as lag,
case when m.lease_until > moment.now then 'leased' when m.due_at > moment.now then 'delayed' else 'ready' end as state

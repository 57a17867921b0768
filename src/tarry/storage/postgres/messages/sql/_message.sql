-- The columns of `StoredMessage` for a live message `m` of queue `q`, without the payload.
q.name as queue, m.key, m.version, m.state, m.attempt, m.priority, m.due_at, m.created_at,
case when m.token is not null then m.leased_at end as leased_at, nullif(m.lease_until, '-infinity') as lease_until,
 case when m.token is not null then m.consumer end as consumer, m.type,
m.headers, m.content_type, coalesce(m.max_attempts, q.max_attempts) as max_attempts, m.last_error, m.origin,
m.max_attempts as own_max_attempts, m.lease_for, m.retry

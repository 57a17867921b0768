-- What a search compares of a message `m`.
m.key, m.queue, m.version, m.due_at, m.created_at, m.priority, m.attempt, m.type, m.last_error,
case when m.token is not null then m.consumer end as consumer,
case when m.lease_until > moment.now then 'leased' when m.due_at > moment.now then 'delayed' else 'ready' end as state

-- The columns of `Event` for an event `e` and its queue `q`, without the payload.
e.id, e.kind::text as kind, e.at, q.name as queue, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail

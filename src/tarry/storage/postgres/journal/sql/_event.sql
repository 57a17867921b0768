-- An event `e` without its payload, as `Event` has it, with its queue `q`.
e.id, e.kind::text as kind, e.at, q.name as queue, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail

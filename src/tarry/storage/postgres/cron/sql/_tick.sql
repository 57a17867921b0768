-- The columns of `TickRecord` for a tick `t` of a ledger and its queue `q`.
%(name)s::text as name, t.hash, t.tick, t.verdict, t.reason, t.decided_at, t.until, t.count, q.name as queue, t.key,
t.version, t.due_at, t.ledger

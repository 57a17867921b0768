-- The conflict clause of offers, for `insert into tarry.message as m`. The codes are those of
-- core.messages.model.CONFLICT_CODES: 0 replace, 1 keep, 2 earliest, 3 debounce.
-- An offer that changes nothing keeps the lease; any other ends it. The version of `excluded` was allocated before the row was
-- locked. If the row has a higher one, a new version is allocated: the versions of a live key only grow.
on conflict (key, queue) do update
set version = case when excluded.version > m.version then excluded.version else nextval('tarry.version_seq') end,
    payload = excluded.payload, content_type = excluded.content_type, priority = excluded.priority,
    due_at = least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
    planned_at = least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
    due_limit = case excluded.conflict when 3 then coalesce(m.due_limit, excluded.due_limit) end,
    conflict = excluded.conflict, type = excluded.type, headers = excluded.headers,
    lease_for = excluded.lease_for, max_attempts = excluded.max_attempts, retry = excluded.retry,
    lease_until = default, leased_at = null, attempt = 0, lapsed = false, token = null, consumer = null,
    origin = null, last_error = null
where excluded.conflict <> 1
  and (excluded.conflict <> 2 or excluded.planned_at < m.planned_at)
  and (m.payload, m.planned_at, m.priority, m.type, m.content_type,
       nullif(m.headers - '{traceparent,tracestate}'::text[], '{}'), m.lease_for, m.max_attempts, m.retry)
      is distinct from
      (excluded.payload, least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
       excluded.priority, excluded.type, excluded.content_type,
       nullif(excluded.headers - '{traceparent,tracestate}'::text[], '{}'), excluded.lease_for,
       excluded.max_attempts, excluded.retry)

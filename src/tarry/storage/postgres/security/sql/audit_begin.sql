-- Record an action before it is executed.
insert into tarry.audit (at, actor, action, queue, detail, request_id)
values (coalesce(%(now)s::timestamptz, clock_timestamp()), %(actor)s, %(action)s, %(queue)s, %(detail)s::jsonb, %(request_id)s)
returning id

-- One live message, as it is, leasing nothing. Relies on message_key.
with q as materialized (
    select id, name, max_attempts from tarry.queue where name = %(queue)s and deleted_at is null
)
select q.name, m.key, m.payload, m.version, tarry.message_state(m, coalesce(%(now)s::timestamptz, clock_timestamp())),
    m.attempt, m.priority, m.due_at, m.created_at, nullif(m.lease_until, '-infinity'), case when m.token is not null then m.consumer end, m.type, m.headers,
    m.content_type, coalesce(m.max_attempts, q.max_attempts), m.last_error, m.origin, m.max_attempts, m.lease_for, m.retry
from q left join tarry.message m on m.key = %(key)s and m.queue = q.id

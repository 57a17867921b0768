-- One live message. Leases nothing. Relies on message_key.
with q as materialized (
    select id, name, max_attempts from tarry.queue where name = %(queue)s and deleted_at is null
)
select m.payload,
    -- include: messages/_message
from q left join lateral (
    select m.*, tarry.message_state(m, coalesce(%(now)s::timestamptz, clock_timestamp())) as state
    from tarry.message m where m.key = %(key)s and m.queue = q.id
) m on true

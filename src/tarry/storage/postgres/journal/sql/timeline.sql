-- The life of one key, oldest first: ids are taken under the row lock, so they are its true order. The last `limit`,
-- before an id, of kinds that this version knows.
-- Relies on event_find, after by_bitmaps.
with q as materialized (
    select id, name from tarry.queue where name = %(queue)s and deleted_at is null
)
select e.id, e.kind::text, e.at, q.name, e.key, e.version, e.attempt, e.priority, e.due_at, e.leased_at,
    e.lease_until, e.consumer, e.size, e.payload_hash, e.payload, e.error, e.detail
from q left join lateral (
    select * from tarry.event
    where queue = q.id and key = %(key)s and kind::text = any (%(kinds)s)
      and (%(before)s::bigint is null or id < %(before)s)
    order by id desc
    limit %(limit)s::int
) e on true
order by e.id

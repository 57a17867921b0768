-- The events of one key, oldest first: ids are allocated under the row lock, so they give the actual order. The last `limit`
-- events before an id, of kinds that this version supports. Relies on event_find, after prefer_bitmap_scans.
with q as materialized (
    select id, name from tarry.queue where name = %(queue)s and deleted_at is null
)
select
    -- include: journal/_event
    , e.payload
from q left join lateral (
    select * from tarry.event
    where queue = q.id and key = %(key)s and kind::text = any (%(kinds)s)
      and (%(before)s::bigint is null or id < %(before)s)
    order by id desc
    limit %(limit)s::int
) e on true
order by e.id

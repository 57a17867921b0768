-- The last events of a range of transactions, newest first, without payloads; also the number of events in the range and
-- their newest time, from which the caller decides when to stop. One scan serves both, up to `most` events. If there are
-- more, they are approximately those of the first transactions (to `reached`), and the caller reads a shorter range.
-- `until_id` is the end of the previous page within the last transaction of the range. Relies on event_find, after
-- prefer_bitmap_scans. The limit is applied before queue names are joined: a lookup per event took most of the time.
with q as materialized (
    select q.id, q.name from tarry.queue q
    where (%(queue_id)s::int is null or q.id = %(queue_id)s)
      and (%(names)s::text[] is null or q.name = any (%(names)s::text[])
           or exists (select from unnest(%(prefixes)s::text[]) p where starts_with(q.name, p)))
), scanned as materialized (
    select e.xid::text::bigint as xid, e.id, e.kind, e.at, e.queue, e.key, e.version, e.attempt, e.priority, e.due_at,
        e.leased_at, e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail
    from tarry.event e
    where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
    limit %(most)s::bigint + 1
), looked as materialized (
    select count(*)::int as n, max(at) as newest, max(xid) as reached from scanned
), last as materialized (
    select e.*
    from scanned e
    where e.queue = any (array(select id from q))
      and e.kind = any (%(kinds)s::text[]::tarry.event_kind[])
      and (e.xid, e.id) < (%(to_xid)s::bigint, %(until_id)s::bigint)
      and e.at >= coalesce(%(since)s::timestamptz, '-infinity') and e.at < coalesce(%(until)s::timestamptz, 'infinity')
      and (%(consumer)s::text is null or e.consumer = %(consumer)s)
    order by e.xid desc, e.id desc
    limit %(limit)s::int
)
select looked.n as looked, looked.newest, looked.reached, f.*
from looked left join lateral (
    select e.xid,
        -- include: journal/_event
    from last e join q on q.id = e.queue
) f on true
order by f.xid desc, f.id desc

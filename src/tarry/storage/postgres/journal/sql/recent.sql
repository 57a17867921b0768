-- The last events of a stretch of transactions, the newest first, for people who look back; without payloads. Also how many
-- events the stretch has at all, wanted or not: so that whoever goes on knows when to stop. `until_id` is where a page before
-- ended, within the last transaction of the stretch. Relies on event_find, after by_bitmaps.
with looked as materialized (
    select count(*)::int as n
    from tarry.event e
    where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
      and e.at >= coalesce(%(since)s::timestamptz, '-infinity') and e.at < coalesce(%(until)s::timestamptz, 'infinity')
)
select looked.n, f.xid, f.id, f.kind, f.at, f.name, f.key, f.version, f.attempt, f.priority, f.due_at, f.leased_at,
    f.lease_until, f.consumer, f.size, f.payload_hash, f.error, f.detail
from looked left join lateral (
    select e.xid::text::bigint as xid, e.id, e.kind::text as kind, e.at, q.name, e.key, e.version, e.attempt, e.priority,
        e.due_at, e.leased_at, e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail
    from tarry.event e join tarry.queue q on q.id = e.queue
    where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
      and (e.xid::text::bigint, e.id) < (%(to_xid)s::bigint, %(until_id)s::bigint)
      and e.at >= coalesce(%(since)s::timestamptz, '-infinity') and e.at < coalesce(%(until)s::timestamptz, 'infinity')
      and (%(queue_id)s::int is null or e.queue = %(queue_id)s)
      and (%(consumer)s::text is null or e.consumer = %(consumer)s)
      and e.kind::text = any (%(kinds)s::text[])
      and (%(names)s::text[] is null or q.name = any (%(names)s::text[])
           or exists (select from unnest(%(beginnings)s::text[]) b where starts_with(q.name, b)))
    order by 1 desc, e.id desc
    limit %(limit)s::int
) f on true
order by f.xid desc, f.id desc

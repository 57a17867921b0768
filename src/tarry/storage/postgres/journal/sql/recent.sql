-- The last events of a range of transactions, the newest first, without payloads; also how many events the range has at
-- all, so that the caller knows when to stop. `until_id` is where the page before ended, within the last transaction of
-- the range. Relies on event_find, after prefer_bitmap_scans.
with looked as materialized (
    select count(*)::int as n
    from tarry.event e
    where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
      and e.at >= coalesce(%(since)s::timestamptz, '-infinity') and e.at < coalesce(%(until)s::timestamptz, 'infinity')
)
select looked.n as looked, f.*
from looked left join lateral (
    select e.xid::text::bigint as xid,
        -- include: journal/_event
    from tarry.event e join tarry.queue q on q.id = e.queue
    where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
      and (e.xid::text::bigint, e.id) < (%(to_xid)s::bigint, %(until_id)s::bigint)
      and e.at >= coalesce(%(since)s::timestamptz, '-infinity') and e.at < coalesce(%(until)s::timestamptz, 'infinity')
      and (%(queue_id)s::int is null or e.queue = %(queue_id)s)
      and (%(consumer)s::text is null or e.consumer = %(consumer)s)
      and e.kind::text = any (%(kinds)s::text[])
      and (%(names)s::text[] is null or q.name = any (%(names)s::text[])
           or exists (select from unnest(%(prefixes)s::text[]) p where starts_with(q.name, p)))
    order by 1 desc, e.id desc
    limit %(limit)s::int
) f on true
order by f.xid desc, f.id desc

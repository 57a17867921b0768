-- The position of the nth event of a window, and whether there are more. A window is closed, so its order never
-- changes. Uses the index event_find for the range of transactions.
select e.xid::text::bigint, e.id
from tarry.event e
where e.xid::text::bigint >= %(first_xid)s::bigint and e.xid::text::bigint < %(end_xid)s::bigint
  and pg_visible_in_snapshot(e.xid, %(until)s::pg_snapshot)
  and not pg_visible_in_snapshot(e.xid, %(since)s::pg_snapshot)
  and (e.xid::text::bigint, e.id) > (%(after_xid)s::bigint, %(after_id)s::bigint)
  and (e.xid::text::bigint, e.id) <= (%(upto_xid)s::bigint, %(upto_id)s::bigint)
order by e.xid, e.id
offset %(most)s::bigint - 1
limit 2

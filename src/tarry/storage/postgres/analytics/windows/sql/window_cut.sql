-- The position of the nth event of a window, and whether there are more. A window is closed, so its order never
-- changes. Uses the index event_find for the range of transactions.
select e.xid::text::bigint as xid, e.id
from tarry.event e
where
-- include: analytics/windows/_in_window
order by e.xid, e.id
offset %(rows)s::bigint - 1
limit 2

-- An event of a range of transactions, one of the first in physical order, for a bisection by time. Relies on event_find, after
-- prefer_bitmap_scans.
select e.xid::text::bigint as xid, e.at
from tarry.event e
where e.xid::text::bigint >= %(from_xid)s::bigint and e.xid::text::bigint <= %(to_xid)s::bigint
limit 1

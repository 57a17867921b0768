-- Events of a window. The range of transactions is for the index event_find; the snapshots decide.
e.xid::text::bigint >= %(first_xid)s::bigint and e.xid::text::bigint < %(end_xid)s::bigint
and pg_visible_in_snapshot(e.xid, %(until)s::pg_snapshot)
and not pg_visible_in_snapshot(e.xid, %(since)s::pg_snapshot)
and (e.xid::text::bigint, e.id) > (%(after_xid)s::bigint, %(after_id)s::bigint)
and (e.xid::text::bigint, e.id) <= (%(upto_xid)s::bigint, %(upto_id)s::bigint)

-- Whether the rollups have all events of a day. Transactions that a snapshot does not show are not before its first running one.
select not exists (
    select from tarry.event e cross join tarry.rollup_head head
    where e.at >= %(from_at)s::timestamptz and e.at < %(to_at)s::timestamptz
      and e.xid::text::bigint >= pg_snapshot_xmin(head.snapshot)::text::bigint
      and not pg_visible_in_snapshot(e.xid, head.snapshot))

-- The transactions between which the journal reaches an instant, from the narrowest slices that are still kept: events up to
-- `after_xid` are before the instant and events beyond `until_xid` after it, except for `slack`. No row if no later events were
-- rolled up, or none shortly before. Relies on the primary key of rollup.
select s.after_xid, s.until_xid
from unnest(array[60, 600, 3600]) as w(width) cross join lateral (
    select max(r.last_xid) as until_xid,
        max(r.last_xid) filter (where r.start_at + make_interval(secs => w.width) < %(at)s::timestamptz - %(slack)s::interval)
            as after_xid
    from tarry.rollup r
    where r.width = w.width and r.start_at > %(at)s::timestamptz - make_interval(secs => 10 * w.width)
      and r.start_at < %(at)s::timestamptz + %(slack)s::interval and r.queue = coalesce(%(queue_id)s::int, 0)
) s
where s.until_xid is not null
  and (select max(l.start_at) from tarry.rollup l where l.width = w.width) >= %(at)s::timestamptz + %(slack)s::interval
order by w.width
limit 1

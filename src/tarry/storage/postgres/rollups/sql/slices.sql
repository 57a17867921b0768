-- The slices of one width between two instants, of one queue or of all. Relies on the primary key.
select q.name as queue, r.start_at, r.offered, r.leased, r.acked, r.nacked, r.expired, r.buried, r.redriven, r.removed,
    r.live_delta, r.dead_delta
from tarry.rollup r join tarry.queue q on q.id = r.queue
where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
  and q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
order by r.start_at, q.name
limit %(limit)s::int

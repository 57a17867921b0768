-- Consumer activity per slice. Relies on the primary key.
select q.name as queue, r.consumer, r.start_at, r.leased, r.acked, r.nacked, r.expired, r.work_s, r.last_at
from tarry.rollup_consumer r join tarry.queue q on q.id = r.queue
where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
  and q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
order by r.start_at, q.name, r.consumer
limit %(limit)s::int

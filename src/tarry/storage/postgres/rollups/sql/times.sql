-- The histogram of a measure per slice and queue. Relies on the primary key.
select q.name as queue, r.start_at, r.bucket, r.n
from tarry.rollup_time r join tarry.queue q on q.id = r.queue
where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
  and r.measure = %(measure)s and q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
order by r.start_at, q.name, r.bucket
limit %(limit)s::int

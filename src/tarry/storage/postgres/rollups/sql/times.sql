-- The histogram of a measure per slice and queue; or the sums over some queues, or over the whole window. Summed here, before
-- names are joined: a page needs one histogram of thousands of rows. Relies on the primary key.
with q as materialized (
    select id, name from tarry.queue
    where deleted_at is null and (%(queue)s::text is null or name = %(queue)s)
      and (%(sum_of)s::text[] is null or name = any (%(sum_of)s::text[]))
), summed as materialized (
    select case when %(sum_of)s::text[] is null then r.queue end as queue,
        case when %(whole)s::boolean then %(since)s::timestamptz else r.start_at end as start_at, r.bucket, sum(r.n) as n
    from tarry.rollup_time r
    where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
      and r.queue = any (array(select id from q)) and r.measure = %(measure)s
    group by 1, 2, 3
)
select coalesce(q.name, '') as queue, s.start_at, s.bucket, s.n
from summed s left join q on q.id = s.queue
order by s.start_at, q.name, s.bucket
limit %(limit)s::int

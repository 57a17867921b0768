-- The histogram of a measure per slice and queue; or the sums over some queues, or over the whole window. Summed before queue
-- names are joined: a page needs one histogram of thousands. The sums over all queues are stored as queue 0. Relies on the
-- primary key.
with q as materialized (
    select id, name from tarry.queue
    where deleted_at is null and (%(queue)s::text is null or name = %(queue)s)
      and (%(sum_of)s::text[] is null or name = any (%(sum_of)s::text[]))
), chosen as materialized (
    select case when %(sum_of)s::text[] is not null
            and (select count(*) from q) = (select count(*) from tarry.queue where deleted_at is null) then array[0]
        else array(select id from q) end as ids
), summed as materialized (
    select case when %(sum_of)s::text[] is null then r.queue end as queue,
        case when %(whole)s::boolean then %(since)s::timestamptz else r.start_at end as start_at, b.bucket, sum(b.n) as n
    from tarry.rollup_time r cross join unnest(r.buckets, r.n) as b(bucket, n)
    where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
      and r.queue = any ((select ids from chosen)::int[]) and r.measure = %(measure)s
    group by 1, 2, 3
)
select coalesce(q.name, '') as queue, s.start_at, s.bucket, s.n
from summed s left join q on q.id = s.queue
order by s.start_at, q.name, s.bucket
limit %(limit)s::int

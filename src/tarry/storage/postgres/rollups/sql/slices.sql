-- The slices of one width between two instants, of one queue or of all; or the sums over some queues. The sums over all queues
-- are stored as queue 0. Relies on the primary key.
with q as materialized (
    select id, name from tarry.queue
    where deleted_at is null and (%(queue)s::text is null or name = %(queue)s)
      and (%(sum_of)s::text[] is null or name = any (%(sum_of)s::text[]))
), chosen as materialized (
    select case when %(sum_of)s::text[] is not null
            and (select count(*) from q) = (select count(*) from tarry.queue where deleted_at is null) then array[0]
        else array(select id from q) end as ids
), summed as materialized (
    select case when %(sum_of)s::text[] is null then r.queue end as queue, r.start_at, sum(r.offered) as offered,
        sum(r.leased) as leased, sum(r.acked) as acked, sum(r.nacked) as nacked, sum(r.expired) as expired,
        sum(r.buried) as buried, sum(r.redriven) as redriven, sum(r.removed) as removed,
        sum(r.live_delta)::bigint as live_delta, sum(r.dead_delta)::bigint as dead_delta
    from tarry.rollup r
    where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
      and r.queue = any ((select ids from chosen)::int[])
    group by 1, 2
)
select coalesce(q.name, '') as queue, s.start_at, s.offered, s.leased, s.acked, s.nacked, s.expired, s.buried, s.redriven,
    s.removed, s.live_delta, s.dead_delta
from summed s left join q on q.id = s.queue
order by s.start_at, q.name
limit %(limit)s::int

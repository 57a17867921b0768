-- The slices of one width between two instants, of one queue or of all; or the sums over some queues. Relies on the primary key.
select case when %(sum_of)s::text[] is null then q.name else '' end as queue, r.start_at, sum(r.offered) as offered,
    sum(r.leased) as leased, sum(r.acked) as acked, sum(r.nacked) as nacked, sum(r.expired) as expired, sum(r.buried) as buried,
    sum(r.redriven) as redriven, sum(r.removed) as removed, sum(r.live_delta)::bigint as live_delta,
    sum(r.dead_delta)::bigint as dead_delta
from tarry.rollup r join tarry.queue q on q.id = r.queue
where r.width = %(width)s::int and r.start_at >= %(since)s::timestamptz and r.start_at < %(until)s::timestamptz
  and q.deleted_at is null and (%(queue)s::text is null or q.name = %(queue)s)
  and (%(sum_of)s::text[] is null or q.name = any (%(sum_of)s::text[]))
group by 1, 2
order by 2, 1
limit %(limit)s::int

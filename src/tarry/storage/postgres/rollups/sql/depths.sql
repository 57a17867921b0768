-- The samples of one width between two instants, summed over some queues; null if one of them is unknown. A queue without a row
-- in a sample had no messages; queue 0 has a row in every sample. Relies on the primary key.
with q as materialized (
    select id from tarry.queue where deleted_at is null and name = any (%(sum_of)s::text[])
), chosen as materialized (
    select case when (select count(*) from q) = (select count(*) from tarry.queue where deleted_at is null) then array[0]
        else array(select id from q) end as ids
)
select s.start_at, case when count(r.queue) = count(r.delayed) then coalesce(sum(r.delayed), 0) end::bigint as delayed,
    case when count(r.queue) = count(r.ready) then coalesce(sum(r.ready), 0) end::bigint as ready,
    coalesce(sum(r.leased), 0)::bigint as leased
from tarry.rollup_depth s
left join tarry.rollup_depth r
    on r.width = s.width and r.start_at = s.start_at and r.queue = any ((select ids from chosen)::int[])
where s.width = %(width)s::int and s.start_at >= %(since)s::timestamptz and s.start_at < %(until)s::timestamptz
  and s.queue = 0
group by s.start_at
order by s.start_at
limit %(limit)s::int

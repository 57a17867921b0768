-- Add the events committed between the head (`since`) and `until`, or now, to all their slices, including those of queue 0, the
-- sums over all queues, and move the head.
-- Each event is in exactly one window between snapshots, whatever its id. The caller has locked the head. A queue without a
-- total is counted, in the same snapshot. Relies on event_find, after prefer_bitmap_scans; `next_xid` and `running` as in
-- journal/tail.
with edge as materialized (
    select %(since)s::pg_snapshot as since, coalesce(%(until)s::pg_snapshot, pg_current_snapshot()) as until
), e as materialized (
    select e.xid::text::bigint as xid, e.queue, e.kind::text as kind, e.at, e.consumer,
        case when e.kind = 'leased' and e.attempt = 1 then 'lag' when e.kind in ('acked', 'nacked') then 'work' end as measure,
        greatest(extract(epoch from e.at - case when e.kind = 'leased' then e.due_at else e.leased_at end), 0)::float8 as took_s,
        case when e.kind in ('offered', 'redriven') then 1
            when e.kind in ('acked', 'buried', 'dropped', 'cron_replaced') then -1 else 0 end as live,
        case when e.kind = 'buried' then 1 when e.kind in ('redriven', 'discarded') then -1 else 0 end as dead
    from edge cross join tarry.event e
    where (e.xid::text::bigint >= %(next_xid)s::bigint or e.xid::text::bigint = any(%(running)s::bigint[]))
      and (%(end_xid)s::bigint is null or e.xid::text::bigint < %(end_xid)s::bigint)
      and not pg_visible_in_snapshot(e.xid, edge.since)
      and pg_visible_in_snapshot(e.xid, edge.until)
), b as (
    select w, date_bin(make_interval(secs => w), e.at, 'epoch') as start, e.*
    from e cross join unnest(array[10, 60, 600, 3600]) as w
), slices as (
    insert into tarry.rollup as r
    select w, start, coalesce(queue, 0),
        count(*) filter (where kind = 'offered'), count(*) filter (where kind = 'leased'),
        count(*) filter (where kind = 'acked'), count(*) filter (where kind = 'nacked'),
        count(*) filter (where kind = 'expired'), count(*) filter (where kind = 'buried'),
        count(*) filter (where kind = 'redriven'), count(*) filter (where kind in ('dropped', 'cron_replaced')),
        sum(live), sum(dead), max(xid)
    from b group by w, start, grouping sets ((queue), ())
    on conflict (width, start_at, queue) do update
    set offered = r.offered + excluded.offered, leased = r.leased + excluded.leased, acked = r.acked + excluded.acked,
        nacked = r.nacked + excluded.nacked, expired = r.expired + excluded.expired, buried = r.buried + excluded.buried,
        redriven = r.redriven + excluded.redriven, removed = r.removed + excluded.removed,
        live_delta = r.live_delta + excluded.live_delta, dead_delta = r.dead_delta + excluded.dead_delta,
        last_xid = greatest(r.last_xid, excluded.last_xid)
), buckets as (
    select w, start, coalesce(queue, 0) as queue, measure,
        case when took_s <= 0.001 then 0 else least(ceil(4 * ln(took_s * 1000) / ln(2)), 200) end::smallint as bucket,
        count(*)::int as n
    from b where measure is not null and took_s is not null
    group by w, start, measure, bucket, grouping sets ((queue), ())
), times as (
    insert into tarry.rollup_time as r
    select w, start, queue, measure, array_agg(bucket order by bucket), array_agg(n order by bucket)
    from buckets group by w, start, queue, measure
    on conflict (width, start_at, queue, measure) do update set (buckets, n) = (
        select array_agg(bucket order by bucket), array_agg(n order by bucket) from (
            select bucket, sum(n)::int as n from (
                select unnest(r.buckets) as bucket, unnest(r.n) as n
                union all select unnest(excluded.buckets), unnest(excluded.n)
            ) both_parts group by bucket
        ) merged)
), consumers as (
    insert into tarry.rollup_consumer as r
    select w, start, queue, consumer, count(*) filter (where kind = 'leased'), count(*) filter (where kind = 'acked'),
        count(*) filter (where kind = 'nacked'), count(*) filter (where kind = 'expired'),
        coalesce(sum(took_s) filter (where measure = 'work'), 0), max(at)
    from b
    where w in (60, 3600) and consumer is not null
      and kind in ('leased', 'touched', 'acked', 'nacked', 'expired', 'released', 'buried')
    group by w, start, queue, consumer
    on conflict (width, start_at, queue, consumer) do update
    set leased = r.leased + excluded.leased, acked = r.acked + excluded.acked, nacked = r.nacked + excluded.nacked,
        expired = r.expired + excluded.expired, work_s = r.work_s + excluded.work_s,
        last_at = greatest(r.last_at, excluded.last_at)
), moved as (
    update tarry.rollup_total t
    set live = t.live + d.live, dead = t.dead + d.dead
    from (select queue, sum(live) as live, sum(dead) as dead from e group by queue) d
    where t.queue = d.queue
), counted as (
    insert into tarry.rollup_total (queue, live, dead)
    select q.id, (select count(*) from tarry.message m where (m.queue + 0) = q.id),
        (select count(*) from tarry.dead_letter d where d.queue = q.id)
    from tarry.queue q
    where %(until)s::text is null and q.deleted_at is null and q.journal <> 'off'
      and not exists (select from tarry.rollup_total t where t.queue = q.id)
), head as (
    update tarry.rollup_head set snapshot = edge.until, at = clock_timestamp() from edge
)
select count(*)::bigint as events from e

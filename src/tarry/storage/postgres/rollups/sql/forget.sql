-- Delete a batch of slices beyond the retention of their width, and totals of queues without a journal that maintains them.
-- Returns the number of slices. In key order. Relies on the primary keys.
with moment as materialized (
    select coalesce(%(now)s::timestamptz, statement_timestamp()) as now
), old as materialized (
    select k.width, moment.now - make_interval(secs => k.seconds) as before
    from moment cross join unnest(%(widths)s::int[], %(kept_s)s::int[]) as k(width, seconds)
), slices as (
    delete from tarry.rollup where (width, start_at, queue) in (
        select r.width, r.start_at, r.queue from old join tarry.rollup r on r.width = old.width and r.start_at < old.before
        order by 1, 2, 3 limit %(limit)s::int)
    returning 1
), times as (
    delete from tarry.rollup_time where (width, start_at, queue, measure) in (
        select r.width, r.start_at, r.queue, r.measure
        from old join tarry.rollup_time r on r.width = old.width and r.start_at < old.before
        order by 1, 2, 3, 4 limit %(limit)s::int)
    returning 1
), consumers as (
    delete from tarry.rollup_consumer where (width, start_at, queue, consumer) in (
        select r.width, r.start_at, r.queue, r.consumer
        from old join tarry.rollup_consumer r on r.width = old.width and r.start_at < old.before
        order by 1, 2, 3, 4 limit %(limit)s::int)
    returning 1
), depths as (
    delete from tarry.rollup_depth where (width, start_at, queue) in (
        select r.width, r.start_at, r.queue
        from old join tarry.rollup_depth r on r.width = old.width and r.start_at < old.before
        order by 1, 2, 3 limit %(limit)s::int)
    returning 1
), totals as (
    delete from tarry.rollup_total t using tarry.queue q
    where q.id = t.queue and (q.journal = 'off' or q.deleted_at is not null)
)
select (select count(*) from slices) + (select count(*) from times) + (select count(*) from consumers)
    + (select count(*) from depths) as forgotten

-- Live messages of some queues that match a search, in due order. At most `walk` messages of each queue and priority are scanned
-- after the position; results are complete up to the horizon, where the first of these scans was cut off. Only the keys of
-- matching messages are kept. Relies on message_order, and on message_key for the page. All lower bounds are one row comparison:
-- with a second one, the index would be read from the first message of the queue on.
with moment as materialized (
    select now, greatest(low, %(after_due_at)s::timestamptz) as low,
        case when low > %(after_due_at)s::timestamptz then 0 else %(after_version)s::bigint end as low_version
    from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) n cross join lateral (
        select greatest(%(due_since)s::timestamptz, case %(state)s::text when 'delayed' then n.now else '-infinity' end) as low
    ) l
), q as materialized (
    select id, name, max_attempts from tarry.queue where name = any (%(queues)s::text[]) and deleted_at is null
), scanned as materialized (
    select s.queue, s.due_at, s.version, s.n = %(walk)s::int as is_cut, case when
        -- include: search/_matches
        then s.key end as key
    from q cross join moment
    cross join generate_series(%(lowest)s::int, %(highest)s::int) as level(priority)
    cross join lateral (
        select row_number() over (order by m.due_at, m.version) as n,
            -- include: search/_scanned
        from tarry.message m
        where (m.queue + 0) = q.id and m.priority = level.priority::smallint
          and (m.due_at, m.version) > (moment.low, moment.low_version)
          and m.due_at < %(due_until)s::timestamptz
          and (%(state)s::text is distinct from 'ready' or m.due_at <= moment.now)
        order by m.due_at, m.version
        limit %(walk)s::int
    ) s
), horizon as materialized (
    select due_at, version from scanned where is_cut order by due_at, version limit 1
), matching as materialized (
    select s.key, s.queue, s.due_at, s.version
    from scanned s left join horizon h on true
    where s.key is not null and (h.version is null or (s.due_at, s.version) <= (h.due_at, h.version))
)
    -- include: search/_page

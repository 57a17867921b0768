-- Live messages with keys in a range that match a search, in due order. At most `walk` keys of all queues are scanned. There is
-- no horizon: if the scan was cut off, a longer prefix finds the others. Relies on message_key.
with moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), q as materialized (
    select id, name, max_attempts from tarry.queue where name = any (%(queues)s::text[]) and deleted_at is null
), scanned as materialized (
    select
        -- include: search/_scanned
    from moment cross join lateral (
        select * from tarry.message
        where key >= %(first_key)s::text and key < %(end_key)s::text
        order by key, queue
        limit %(walk)s::int
    ) m
), horizon as materialized (
    select s.due_at, s.version from scanned s where false
), matching as materialized (
    select s.key, s.queue, s.due_at, s.version
    from scanned s
    where s.queue in (select id from q) and (s.due_at, s.version) > (%(after_due_at)s::timestamptz, %(after_version)s::bigint)
      and s.due_at >= %(due_since)s::timestamptz and s.due_at < %(due_until)s::timestamptz
      and s.priority between %(lowest)s::int and %(highest)s::int and
        -- include: search/_matches
)
    -- include: search/_page

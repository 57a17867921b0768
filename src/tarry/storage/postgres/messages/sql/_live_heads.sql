-- The position of the first live message of queue `q` per priority, after the caller's position. If that message is not due yet,
-- the position is ten seconds ago, since other messages are offered before it, but never before the caller's position. The rest
-- of the statement starts there, so index entries of dead rows are scanned once, or not at all by a caller that remembers the
-- result (see `LiveHeads`).
live_head as materialized (
    select start.priority,
        case when found.due_at <= settled.until then found.due_at else greatest(start.due_at, settled.until) end as due_at,
        case when found.due_at <= settled.until then found.version
            when start.due_at >= settled.until then start.version + 1 else 0 end as version
    from q
    cross join (select coalesce(%(now)s::timestamptz, statement_timestamp()) - interval '10s' as until) settled
    cross join unnest(%(priorities)s::smallint[], %(after_due_at)s::timestamptz[], %(after_version)s::bigint[])
        as start(priority, due_at, version)
    left join lateral (
        select m.due_at, m.version
        from tarry.message m
        where (m.queue + 0) = q.id
          -- typed: and m.type = %(type)s
          and m.priority = start.priority
          and (m.due_at, m.version) > (start.due_at, start.version)
        order by m.due_at, m.version
        limit 1
    ) found on true
)

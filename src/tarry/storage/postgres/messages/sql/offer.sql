-- Store messages, one row per live key, and return the created and updated keys (unless all were created); the others are
-- unchanged. One statement, so a concurrent writer causes a conflict row, not an error. Rows arrive sorted by key (lock order)
-- and without duplicates; message_key decides conflicts. `ranks` is the order of the caller: versions grow in this order, so
-- messages with the same due time are delivered in it.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, statement_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null and (max_depth is null or %(fits)s::boolean)
), seq as materialized ( -- many
    select coalesce(%(versions)s::bigint[], -- many
        array(select nextval('tarry.version_seq') from generate_series(1, cardinality(%(keys)s::text[])))) as versions -- many
    from q -- many
), stored as (
    insert into tarry.message as m (version, queue, key, payload, content_type, due_at, planned_at, created_at, priority,
        conflict, type, headers, lease_for, max_attempts, retry, due_limit)
    select
        (select versions from seq)[d.rank], -- many
        -- one: nextval('tarry.version_seq'),
        q.id, d.key, d.payload, d.content_type, least(t.due_at, t.due_limit), least(t.due_at, t.due_limit), q.now, d.priority,
        d.conflict, d.type, d.extra -> 'headers', make_interval(secs => (d.extra ->> 'lease_for')::float8),
        (d.extra ->> 'max_attempts')::int,
        case when d.extra ? 'retry' then array(select x::float8 from jsonb_array_elements_text(d.extra -> 'retry') x) end,
        t.due_limit
    from q, unnest(%(ranks)s::int[], %(keys)s::text[], %(payloads)s::bytea[], %(due_ats)s::timestamptz[], %(after_s)s::float8[],
        %(priorities)s::smallint[], %(conflicts)s::smallint[], %(types)s::text[], %(content_types)s::text[],
        %(extras)s::jsonb[])
        as d(rank, key, payload, due_at, after_s, priority, conflict, type, content_type, extra), lateral (select
        coalesce(d.due_at, q.now + make_interval(secs => d.after_s), q.now) as due_at,
        q.now + make_interval(secs => (d.extra ->> 'max_wait')::float8) as due_limit) t
    -- include: messages/_conflict
    returning m.key::text, m.payload, m.version, m.priority, m.due_at, m.type, m.content_type, m.headers, m.xmax = 0 as created
), noted as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select case when s.created then 'offered'::tarry.event_kind else 'updated' end,
        q.now, q.id, s.key, s.version, 0, s.priority, s.due_at,
        length(s.payload), substr(sha256(s.payload), 1, 8), case q.journal when 'payloads' then s.payload end,
        tarry.detail(q.journal = 'payloads', s.type, s.content_type, s.headers)
    from q, stored s
    where q.journal <> 'off'
)
select
    -- one: coalesce(d.created, false)::int as n, case when not d.created then array[d.key] end as updated,
    count(*) filter (where d.created)::int as n, -- many
    case when count(*) filter (where d.created) < cardinality(%(keys)s::text[]) -- many
        then array_agg(d.key) filter (where d.created) end as created, -- many
    array_agg(d.key) filter (where not d.created) as updated, -- many
    -- include: wakeup/_notify
from q left join stored d on true
having count(*) > 0 -- many

-- Store messages, one row per live key, and say which were created or updated (only if not all were created); the rest
-- was left as it was.
-- One statement, so a racing writer is a row and not an error. Rows arrive sorted by key (lock order) and without
-- duplicates; message_key decides conflicts. An offer that changes nothing keeps the lease, any other ends it.
-- A version was taken before the row was locked; if somebody else's higher one is there by now, a still higher one is
-- taken, so the versions of a live key only grow.
-- Who sleeps for later than one of them is woken, if anybody does. For a second after its time a sleeper is about to sleep
-- again, and has looked already: it is woken for what is due at once.
-- `places` says in which order they were given: versions grow in that order, so what is due together stays in line.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, statement_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null
), numbered as materialized (
    select coalesce(%(versions)s::bigint[],
        array(select nextval('tarry.version_seq') from generate_series(1, cardinality(%(keys)s::text[])))) as versions
    from q
), stored as (
    insert into tarry.message as m (version, queue, key, payload, content_type, due_at, planned_at, created_at, priority,
        conflict, type, headers, lease_for, max_attempts, retry, due_limit, origin)
    select (select versions from numbered)[d.place], q.id, d.key, d.payload, d.content_type, least(t.due_at, t.due_limit), least(t.due_at, t.due_limit), q.now,
        d.priority, d.conflict, d.type, d.extra -> 'headers', make_interval(secs => (d.extra ->> 'lease_for')::float8),
        (d.extra ->> 'max_attempts')::int,
        case when d.extra ? 'retry' then array(select x::float8 from jsonb_array_elements_text(d.extra -> 'retry') x) end,
        t.due_limit, null
    from q
    cross join unnest(%(places)s::int[], %(keys)s::text[], %(payloads)s::bytea[], %(due_ats)s::timestamptz[], %(delays)s::float8[],
        %(priorities)s::smallint[], %(conflicts)s::smallint[], %(types)s::text[], %(content_types)s::text[],
        %(extras)s::jsonb[])
        as d(place, key, payload, due_at, delay, priority, conflict, type, content_type, extra)
    cross join lateral (select
        coalesce(d.due_at, q.now + make_interval(secs => d.delay)) as due_at,
        q.now + make_interval(secs => (d.extra ->> 'max_wait')::float8) as due_limit) t
    on conflict (key, queue) do update
    set version = case when excluded.version > m.version then excluded.version else nextval('tarry.version_seq') end,
        payload = excluded.payload, content_type = excluded.content_type, priority = excluded.priority,
        due_at = least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
        planned_at = least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
        due_limit = case excluded.conflict when 3 then coalesce(m.due_limit, excluded.due_limit) end,
        conflict = excluded.conflict, type = excluded.type, headers = excluded.headers,
        lease_for = excluded.lease_for, max_attempts = excluded.max_attempts, retry = excluded.retry,
        lease_until = default, leased_at = null, attempt = 0, lapsed = false, token = null, consumer = null,
        origin = null, last_error = null
    where excluded.conflict <> 1
      and (excluded.conflict <> 2 or excluded.planned_at < m.planned_at)
      and (m.payload, m.planned_at, m.priority, m.type, m.content_type,
           nullif(m.headers - '{traceparent,tracestate}'::text[], '{}'), m.lease_for, m.max_attempts, m.retry)
          is distinct from
          (excluded.payload, least(excluded.due_at, case excluded.conflict when 3 then m.due_limit end),
           excluded.priority, excluded.type, excluded.content_type,
           nullif(excluded.headers - '{traceparent,tracestate}'::text[], '{}'), excluded.lease_for,
           excluded.max_attempts, excluded.retry)
    returning m.key, m.payload, m.version, m.priority, m.due_at, m.type, m.content_type, m.headers, m.xmax = 0 as created
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select case when s.created then 'offered'::tarry.event_kind else 'updated' end,
        q.now, q.id, s.key, s.version, 0, s.priority, s.due_at,
        octet_length(s.payload), substr(sha256(s.payload), 1, 8), case q.journal when 'payloads' then s.payload end,
        case q.journal when 'payloads' then tarry.told(s.type, s.content_type, s.headers) end
    from q cross join stored s
    where q.journal <> 'off'
)
select count(*) filter (where s.created)::int,
    case when count(*) filter (where s.created) < cardinality(%(keys)s::text[])
        then array_agg(s.key) filter (where s.created) end,
    array_agg(s.key) filter (where not s.created),
    (select count(pg_notify('tarry', %(queue)s::text || '/' || w.type)) from tarry.waiter w
    where w.queue = q.id and w.wakes_at > case when min(s.due_at) <= q.now then q.now - interval '1s' else min(s.due_at) end
      and (w.type = '' or w.type = any (array_agg(s.type))))
from q left join stored s on true
group by q.id, q.now

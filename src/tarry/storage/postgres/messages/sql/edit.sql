-- Edit a live message: it gets a new version, which ends a lease of the old one. A leased message only with `force`; its
-- attempt then does not count, as after a release. The update waits for a concurrent writer of the row and changes the row that
-- this writer leaves. `seen` is the row in the snapshot and shows why nothing was changed; if it gives no reason, a concurrent
-- writer came first, and the caller retries. Relies on message_key.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, clock_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null
), seen as materialized (
    select m.version, m.lease_until > q.now as leased,
        (%(payload)s::bytea is null or (m.payload, m.content_type) is not distinct from (%(payload)s, %(content_type)s::text))
        and coalesce(m.due_at = coalesce(%(due_at)s::timestamptz, q.now + %(after)s::interval), true)
        and coalesce(m.priority = %(priority)s::smallint, true)
        and ('type' <> all (%(named)s::text[]) or m.type is not distinct from %(type)s::text)
        and ('headers' <> all (%(named)s::text[]) or m.headers is not distinct from %(headers)s::jsonb)
        and ('lease_for' <> all (%(named)s::text[]) or m.lease_for is not distinct from %(lease_for)s::interval)
        and ('max_attempts' <> all (%(named)s::text[]) or m.max_attempts is not distinct from %(max_attempts)s::int)
        and ('retry' <> all (%(named)s::text[]) or m.retry is not distinct from %(retry)s::float8[]) as same
    from q join tarry.message m on m.key = %(key)s and m.queue = q.id
), edited as (
    update tarry.message m
    set version = nextval('tarry.version_seq'),
        payload = coalesce(%(payload)s::bytea, m.payload),
        content_type = case when %(payload)s::bytea is null then m.content_type else %(content_type)s::text end,
        due_at = coalesce(%(due_at)s::timestamptz, q.now + %(after)s::interval, m.due_at),
        planned_at = coalesce(%(due_at)s::timestamptz, q.now + %(after)s::interval, m.planned_at),
        due_limit = case when 'due_at' <> all (%(named)s::text[]) then m.due_limit end,
        priority = coalesce(%(priority)s::smallint, m.priority),
        type = case when 'type' = any (%(named)s::text[]) then %(type)s::text else m.type end,
        headers = case when 'headers' = any (%(named)s::text[]) then %(headers)s::jsonb else m.headers end,
        lease_for = case when 'lease_for' = any (%(named)s::text[]) then %(lease_for)s::interval else m.lease_for end,
        max_attempts = case when 'max_attempts' = any (%(named)s::text[]) then %(max_attempts)s::int else m.max_attempts end,
        retry = case when 'retry' = any (%(named)s::text[]) then %(retry)s::float8[] else m.retry end,
        attempt = m.attempt - (m.lease_until > q.now)::int,
        lease_until = default, leased_at = null, lapsed = false, expired_at = null, token = null, consumer = null
    from q cross join seen s
    where m.key = %(key)s and m.queue = q.id and not s.same
      and (%(force)s::boolean or m.lease_until <= q.now)
      and (%(version)s::bigint is null or m.version = %(version)s)
    returning m.key, m.version, m.attempt, m.priority, m.due_at, m.payload, m.type, m.content_type, m.headers
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select 'edited', q.now, q.id, e.key, e.version, e.attempt, e.priority, e.due_at, octet_length(e.payload),
        substr(sha256(e.payload), 1, 8), case q.journal when 'payloads' then e.payload end,
        %(detail)s::jsonb || coalesce(tarry.detail(q.journal = 'payloads', e.type, e.content_type, e.headers), '{}')
    from q cross join edited e
    where q.journal <> 'off'
)
select s.version, s.leased, s.same, count(d.key) > 0 as changed,
    -- include: wakeup/_notify
from q left join seen s on true left join edited d on true
group by q.id, s.version, s.leased, s.same

-- Lease the first n deliverable messages, by priority, due time and version, in one statement.
-- Relies on message_order, one descent per priority from where the caller's cursor stands. The picked rows are locked
-- (skipping what others hold) before the update goes to them by ctid, so no plan can lease more than n. Nothing indexed
-- changes: HOT. A lease lost in a crash is a redelivery, so the commit need not wait for the disk unless `durable`.
-- An expiry that a sweeper has told (`expired_at`) is not told again.
-- A row that has used its last attempt comes back as exhausted, for the caller to bury. That is no delivery: `attempt` stays
-- and no lease is journaled, so a caller that dies before it buries leaves no trace. `expired_at` marks such a row.
with relaxed as materialized (
    select set_config('synchronous_commit',
        case when %(durable)s::boolean then current_setting('synchronous_commit') else 'off' end, true)
), q as materialized (
    select id, lease_for, coalesce(%(max_attempts)s::int, max_attempts) as max_attempts, journal, paused_at
    from tarry.queue cross join relaxed
    where name = %(queue)s and deleted_at is null
), leased as (
    update tarry.message m
    set lapsed = token is not null and expired_at is null,
        expired_at = case when attempt >= coalesce(m.max_attempts, (select max_attempts from q), 2147483647)
            then coalesce(%(now)s::timestamptz, clock_timestamp()) end,
        attempt = attempt
            + (attempt < coalesce(m.max_attempts, (select max_attempts from q), 2147483647))::int,
        attempts_asked = %(max_attempts)s::int,
        leased_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
        lease_until = coalesce(%(now)s::timestamptz, clock_timestamp())
            + coalesce(%(lease_for)s::interval, m.lease_for, (select lease_for from q)),
        token = gen_random_uuid(),
        consumer = %(consumer)s::text
    where m.ctid = any (array(
        select picked.ctid
        from unnest(%(priorities)s::smallint[], %(after_due_at)s::timestamptz[], %(after_version)s::bigint[])
            as cursor(priority, due_at, version)
        cross join lateral (
            select c.ctid
            from tarry.message c
            where (c.queue + 0) = (select id from q where paused_at is null)
              and c.priority = cursor.priority
              and (c.due_at, c.version) > (cursor.due_at, cursor.version)
              and c.due_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
              and c.lease_until <= coalesce(%(now)s::timestamptz, statement_timestamp())
            order by c.due_at, c.version
            limit %(n)s::int
            for update skip locked
        ) picked
        limit %(n)s::int))
    returning m.key, m.payload, m.version, m.token, m.attempt, m.priority, m.due_at, m.lease_until, m.leased_at,
        m.type, m.headers, m.content_type, m.lapsed,
        m.expired_at is not null as exhausted
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'expired'::tarry.event_kind, l.leased_at, q.id, l.key, l.version,
        l.attempt - (not l.exhausted)::int, l.priority, l.due_at, null::timestamptz, null::timestamptz, null::text
    from q cross join leased l
    where q.journal <> 'off' and l.lapsed
    union all
    select 'leased'::tarry.event_kind, l.leased_at, q.id, l.key, l.version, l.attempt, l.priority, l.due_at,
        l.leased_at, l.lease_until, %(consumer)s::text
    from q cross join leased l
    where q.journal <> 'off' and not l.exhausted
)
select l.key, l.payload, l.version, l.token, l.attempt, l.priority, l.due_at, l.lease_until, l.leased_at, l.type,
    l.headers, l.content_type, l.exhausted
from q left join leased l on true

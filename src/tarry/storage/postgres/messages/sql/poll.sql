-- Lease the first n deliverable messages, by priority, due time and version, in one statement. Relies on message_order,
-- or with `typed` on message_order_by_type, one descent per priority from the caller's cursor. The chosen rows are locked
-- (SKIP LOCKED) before the update finds them by ctid, so no plan can lease more than n. No indexed column changes: HOT. A
-- lease lost in a crash is a redelivery, so the commit need not wait for the disk unless `durable`. An expiry that a
-- sweeper has journaled (`expired_at`) is not journaled again. A row that has used its last attempt is returned as
-- exhausted, for the caller to bury. That is not a delivery: `attempt` stays and no lease is journaled, so a caller that dies
-- before it buries the message leaves no trace. `expired_at` marks such a row. `token` is the poll number, see `lease_tokens`.
with q as materialized (
    select id, lease_for, coalesce(%(max_attempts)s::int, max_attempts, 2147483647) as max_attempts, journal, paused_at,
        set_config('synchronous_commit',
            case when %(durable)s::boolean then current_setting('synchronous_commit') else 'off' end, true)
    from tarry.queue
    where name = %(queue)s and deleted_at is null
), leased as (
    update tarry.message m
    set lapsed = token is not null and expired_at is null,
        expired_at = case when attempt >= coalesce(m.max_attempts, q.max_attempts)
            then coalesce(%(now)s::timestamptz, clock_timestamp()) end,
        attempt = attempt + (attempt < coalesce(m.max_attempts, q.max_attempts))::int,
        policy_max_attempts = %(max_attempts)s::int,
        leased_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
        lease_until = coalesce(%(now)s::timestamptz, clock_timestamp())
            + coalesce(%(lease_for)s::interval, m.lease_for, q.lease_for),
        token = %(token)s::bigint,
        consumer = %(consumer)s::text
    from q
    where m.ctid = any (array(
        select picked.ctid
        from unnest(%(priorities)s::smallint[], %(after_due_at)s::timestamptz[], %(after_version)s::bigint[])
            as cursor(priority, due_at, version)
        cross join lateral (
            select c.ctid
            from tarry.message c
            where (c.queue + 0) = (select id from q where paused_at is null)
              -- typed: and c.type = %(type)s
              and c.priority = cursor.priority
              and (c.due_at, c.version) > (cursor.due_at, cursor.version)
              and c.due_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
              and c.lease_until <= coalesce(%(now)s::timestamptz, statement_timestamp())
            order by c.due_at, c.version
            limit %(n)s::int
            for update skip locked
        ) picked
        limit %(n)s::int))
    returning m.ctid as tid, m.key, m.payload, m.version, m.attempt, m.priority, m.due_at, m.lease_until, m.leased_at,
        m.type, m.headers, m.content_type, m.lapsed,
        m.expired_at is not null as exhausted, q.id as queue, q.journal
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select e.kind, l.leased_at, l.queue, l.key, l.version, l.attempt - (not e.is_lease and not l.exhausted)::int,
        l.priority, l.due_at, case when e.is_lease then l.leased_at end, case when e.is_lease then l.lease_until end,
        case when e.is_lease then %(consumer)s::text end
    from leased l
    cross join (values ('expired'::tarry.event_kind, false), ('leased', true)) as e(kind, is_lease)
    where l.journal <> 'off' and case when e.is_lease then not l.exhausted else l.lapsed end
)
select l.tid, l.key, l.payload, l.version, l.attempt, l.priority, l.due_at, l.lease_until, l.leased_at, l.type,
    l.headers, l.content_type, l.exhausted
from q left join leased l on true

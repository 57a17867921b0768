-- One step of the sweeper along a queue: journal expired leases, once each, and bury messages without attempts left. The next
-- poll would do the same; an idle queue has none. Scans message_order from the sweeper's cursor, one descent per priority, at
-- most `limit` rows each. Locked rows are skipped, and no indexed column changes: HOT. The token stays, so a late ack still
-- counts. A paused queue is not swept. Returns one row per priority with rows, at least one if the queue was swept, each with the
-- positions of the first live messages.
with
-- include: maintenance/_leadership
, q as materialized (
    select id, journal, max_attempts from tarry.queue
    where name = %(queue)s and deleted_at is null and paused_at is null
      and (%(leader)s::text is null or exists (select from leadership))
),
-- include: messages/_live_heads
, moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
), walked as materialized (
    select w.*, live.priority
    from live_head live
    cross join lateral (
        select c.ctid as place, c.due_at, c.version, c.lease_until <= (select now from moment)
            and ((c.token is not null and c.expired_at is null)
                or c.attempt >= coalesce(c.max_attempts, c.policy_max_attempts, (select max_attempts from q), 2147483647)) as stuck
        from tarry.message c
        where (c.queue + 0) = (select id from q) and c.priority = live.priority
          and (c.due_at, c.version) >= (live.due_at, live.version)
          and c.due_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
        order by c.due_at, c.version
        limit %(limit)s::int
    ) w
), locked as materialized (
    select m.ctid as place, m.attempt >= coalesce(m.max_attempts, m.policy_max_attempts, (select max_attempts from q), 2147483647) as exhausted,
        m.token is not null and m.expired_at is null as lapsed
    from tarry.message m
    where m.ctid = any (array(select place from walked where stuck))
      and m.lease_until <= (select now from moment)
      and ((m.token is not null and m.expired_at is null)
          or m.attempt >= coalesce(m.max_attempts, m.policy_max_attempts, (select max_attempts from q), 2147483647))
    for update skip locked
), lapsed_rows as (
    update tarry.message m set expired_at = (select now from moment)
    where m.ctid = any (array(select place from locked where not exhausted))
    returning m.key, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer
), died as (
    delete from tarry.message m using locked l
    where m.ctid = l.place and l.exhausted
    returning m.*, l.lapsed as by_expiry
), buried as (
    insert into tarry.dead_letter (version, queue, died_at, due_at, created_at, priority, attempt, reason, key, payload,
        type, content_type, headers, lease_for, max_attempts, retry, consumer, origin, error)
    select version, queue, (select now from moment), due_at, created_at, priority, attempt, 'exhausted', key, payload, type,
        content_type, headers, lease_for, max_attempts, retry, case when token is not null then consumer end, origin, last_error
    from died
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer, detail)
    select f.kind, moment.now, q.id, f.key, f.version, f.attempt, f.priority, f.due_at, f.leased_at, f.lease_until,
        f.consumer, f.detail
    from q cross join moment cross join (
        select 'expired'::tarry.event_kind as kind, lapsed_rows.*, null::jsonb as detail from lapsed_rows
        union all
        select 'expired', key, version, attempt, priority, due_at, leased_at, lease_until, consumer, null
        from died where by_expiry
        union all
        select 'buried', key, version, attempt, priority, due_at, case when by_expiry then leased_at end, null,
            case when by_expiry then consumer end, jsonb_build_object('reason', 'exhausted')
        from died
    ) f
    where q.journal <> 'off'
)
select (select count(*) from lapsed_rows) + (select count(*) from died where by_expiry) as expired, (select count(*) from died) as buried,
    w.priority, count(w.place) as walked, max(w.due_at) as due_at,
    (array_agg(w.version order by w.due_at desc, w.version desc))[1] as version,
    (select array_agg(due_at order by priority) from live_head) as live_due_ats,
    (select array_agg(version order by priority) from live_head) as live_versions
from q left join walked w on true group by w.priority

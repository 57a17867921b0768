-- Nack messages. A message with attempts left is delayed by the retry policy (or until the given time); one without, or one
-- with a `reason`, becomes a dead letter in the same transaction. Found and fenced as in `ack_by_key`. The caller's policy
-- replaces the queue's; the message's own policy precedes both. The delay is the SQL form of `Retry.delay`. `lapsed` messages
-- had used their last attempt before the poll that found them: its consumer did not lease them, and the poll has journaled
-- the expiry. The fingerprint is that of the given error; if the error of an earlier attempt is kept instead, it is computed
-- later. The event contains the maximum number of attempts: the message's own, or the queue's current one.
with q as materialized (
    select id, journal, coalesce(%(max_attempts)s::int, max_attempts) as max_attempts,
        coalesce(%(retry)s::float8[], retry) as retry
    from tarry.queue where name = %(queue)s and deleted_at is null
), failure as materialized (
    select f.*, found.ctid as tid, coalesce(%(now)s::timestamptz, clock_timestamp()) as now
    from unnest(%(keys)s::text[], %(tokens)s::bigint[], %(errors)s::text[], %(due_ats)s::timestamptz[], %(after_s)s::float8[],
        %(reasons)s::text[], %(lapsed)s::boolean[], %(fingerprints)s::text[])
        as f(key, token, error, due_at, after_s, reason, lapsed, fingerprint)
    cross join lateral (
        select m.ctid from tarry.message m
        where m.key = f.key and m.queue = (select id from q) and m.token = f.token offset 0) found
), moved as (
    update tarry.message m
    set due_at = coalesce(f.due_at, f.now + make_interval(secs => coalesce(f.after_s,
            least((coalesce(m.retry, q.retry))[1] * power((coalesce(m.retry, q.retry))[2], least(m.attempt - 1, 62)),
                  (coalesce(m.retry, q.retry))[3]) * (1 - (coalesce(m.retry, q.retry))[4] * random())))),
        token = null, lease_until = '-infinity', last_error = coalesce(f.error, m.last_error)
    from failure f cross join q
    where m.ctid = f.tid and m.token = f.token and f.reason is null
      and m.attempt < coalesce(m.max_attempts, q.max_attempts, 2147483647)
    returning m.key, f.token, f.error, f.now, m.version, m.attempt, m.priority, m.due_at,
        m.leased_at, m.consumer, m.type, coalesce(m.max_attempts, q.max_attempts) as allowed
), died as (
    delete from tarry.message m
    using failure f cross join q
    where m.ctid = f.tid and m.token = f.token
      and (f.reason is not null or m.attempt >= coalesce(m.max_attempts, q.max_attempts, 2147483647))
    returning m.*, f.error, f.now, coalesce(f.reason, 'exhausted') as reason, f.reason is null as nacked,
        coalesce(m.max_attempts, q.max_attempts) as allowed,
        case when f.error is not null or m.last_error is null then f.fingerprint end as fingerprint,
        case when not f.lapsed then m.leased_at end as held_at, case when not f.lapsed then m.consumer end as holder
), buried as (
    insert into tarry.dead_letter (version, queue, died_at, due_at, created_at, priority, attempt, reason, key, payload,
        type, content_type, headers, lease_for, max_attempts, retry, consumer, origin, error, fingerprint)
    select version, queue, now, due_at, created_at, priority, attempt, reason, key, payload, type, content_type,
        headers, lease_for, max_attempts, retry, holder, origin, coalesce(error, last_error), fingerprint
    from died
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, consumer, error, detail)
    select fact.kind, fact.now, q.id, fact.key, fact.version, fact.attempt, fact.priority, fact.due_at, fact.leased_at,
        fact.consumer, fact.error, fact.detail
    from q cross join (
        select 'nacked'::tarry.event_kind as kind, now, key, version, attempt, priority, due_at, leased_at, consumer,
            error, case when allowed is not null then jsonb_build_object('max_attempts', allowed) end as detail
        from moved
        union all
        select 'nacked', now, key, version, attempt, priority, due_at, held_at, holder, error,
            case when allowed is not null then jsonb_build_object('max_attempts', allowed) end
        from died where nacked
        union all
        select 'buried', now, key, version, attempt, priority, due_at, held_at, holder, error,
            jsonb_build_object('reason', reason)
        from died
    ) fact
    where q.journal <> 'off'
)
select
    -- include: messages/_settled
    ,
    -- include: wakeup/_notify
from q left join (select key, due_at, type from moved union all select key, null, null from died) d on true
group by q.id

-- Turn a live message into a dead letter by its key, regardless of its remaining attempts. A leased message only with `force`,
-- which ends the lease. Fenced as in `edit`, and `seen` shows why nothing was changed. Relies on message_key.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, clock_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null
), seen as materialized (
    select m.version, m.lease_until > q.now as leased
    from q join tarry.message m on m.key = %(key)s and m.queue = q.id
), died as (
    delete from tarry.message m
    using q
    where m.key = %(key)s and m.queue = q.id
      and (%(force)s::boolean or m.lease_until <= q.now)
      and (%(version)s::bigint is null or m.version = %(version)s)
    returning m.*
), buried as (
    insert into tarry.dead_letter (version, queue, died_at, due_at, created_at, priority, attempt, reason, key, payload,
        type, content_type, headers, lease_for, max_attempts, retry, origin, error, fingerprint)
    select d.version, d.queue, q.now, d.due_at, d.created_at, d.priority, d.attempt, 'buried', d.key, d.payload, d.type,
        d.content_type, d.headers, d.lease_for, d.max_attempts, d.retry, d.origin, coalesce(%(error)s::text, d.last_error),
        case when %(error)s::text is not null or d.last_error is null then %(fingerprint)s::text end
    from died d cross join q
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, error, detail)
    select 'buried', q.now, q.id, d.key, d.version, d.attempt, d.priority, d.due_at, %(error)s::text,
        jsonb_build_object('reason', 'buried')
    from died d cross join q
    where q.journal <> 'off'
)
select s.version, s.leased, false as same, d.version is not null as changed
from q left join seen s on true left join died d on true

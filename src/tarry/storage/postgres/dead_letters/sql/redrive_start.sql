-- Start a redrive job, once per request. Messages revived from now on have versions above `before_version`, so the job does not
-- redrive letters that it revived and that died again.
with q as materialized (
    select q.id, t.id as target from tarry.queue q
    left join tarry.queue t on t.name = coalesce(%(target)s::text, q.name) and t.deleted_at is null
    where q.name = %(queue)s and q.deleted_at is null
), made as (
    insert into tarry.redrive_job (request, queue, fingerprint, type, died_from, died_to, key_prefix, versions, rate,
        canary, state, phase, started_by, total, total_capped, before_version, after_died_at, next_at, created_at, updated_at, target, jitter,
        stop_above, max_attempts, judged_at)
    select %(request)s::uuid, q.id, %(fingerprint)s, %(type)s, %(died_from)s::timestamptz, %(died_to)s::timestamptz,
        %(key_prefix)s, %(versions)s::bigint[], %(rate)s::float8, %(canary)s::int, 'running',
        case when %(canary)s::int > 0 then 'canary' else 'rest' end, %(started_by)s, %(total)s::bigint,
        %(total_capped)s::boolean, nextval('tarry.version_seq'),
        coalesce(%(died_from)s::timestamptz, '-infinity'), t.now + %(after)s::interval, t.now, t.now, nullif(q.target, q.id),
        %(jitter)s::interval, %(stop_above)s::float8, %(max_attempts)s::int, t.now
    from q cross join (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
    where q.target is not null
    on conflict (request) do nothing
)
select id, target from q

-- One step of a redrive job: redrive these dead letters and advance the job in one statement, so that after a crash both happened
-- or neither. `step` names the step, so none is executed twice. A letter whose key is live, or that is gone, is skipped. With
-- another target queue, a letter is offered there and discarded here: both journals stay complete. Locks, order and notifications
-- as in `redrive`. Another transaction may have locked a key or a letter (for example to set its fingerprint). Skipping it would
-- leave it dead for good, so the step waits, in version order; a leader waits only 5 s and then retries the step. With a failure
-- limit, the deaths since the last step are counted, except those of the last second, whose transactions may be uncommitted.
with timeout as materialized (
    select set_config('lock_timeout',
        case when %(leader)s::text is null then current_setting('lock_timeout') else '5s' end, true)
),
-- include: maintenance/_leadership
, job as materialized (
    select j.*, coalesce(%(now)s::timestamptz, clock_timestamp()) as now
    from timeout cross join tarry.redrive_job j
    where j.id = %(job)s and j.step = %(step)s and j.state = 'running'
      and (%(leader)s::text is null or exists (select from leadership))
    for update of j skip locked
), q as materialized (
    select t.id, t.name, t.journal, s.id as source, s.name as source_name, s.journal as source_journal
    from job join tarry.queue s on s.id = job.queue join tarry.queue t on t.id = coalesce(job.target, job.queue)
    where s.deleted_at is null and t.deleted_at is null
), free as materialized (
    select distinct on (d.key) d.version from tarry.dead_letter d
    where d.version = any (%(versions)s::bigint[]) and d.queue = (select source from q)
      and not exists (select from tarry.message m where m.key = d.key and m.queue = (select id from q))
    order by d.key, d.died_at, d.version
), locked as materialized (
    select * from tarry.dead_letter where version = any (array(select version from free)) order by version for update
), numbered as materialized (
    select array(select nextval('tarry.version_seq') from locked) as versions
), revived as (
    insert into tarry.message (version, queue, key, payload, content_type, due_at, planned_at, created_at, priority,
        conflict, type, headers, lease_for, max_attempts, retry, origin)
    select (select versions from numbered)[l.place], (select id from q), l.key, l.payload, l.content_type, l.due, l.due, job.now,
        l.priority, 0, l.type, l.headers, l.lease_for, coalesce(job.max_attempts, l.max_attempts), l.retry, l.version
    from job cross join lateral (
        select *, job.now + random() * job.jitter as due, row_number() over (order by died_at, version) as place from locked
    ) l
    order by l.key
    on conflict (key, queue) do nothing
    returning key::text, version, origin, priority, due_at, payload, type
), gone as (
    delete from tarry.dead_letter where version = any (array(select origin from revived))
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, detail)
    select case when q.id = q.source then 'redriven'::tarry.event_kind else 'offered' end, job.now, q.id, r.key, r.version, 0,
        r.priority, r.due_at, octet_length(r.payload), case when q.id <> q.source then substr(sha256(r.payload), 1, 8) end,
        jsonb_build_object('from_version', r.origin, 'job', job.id)
            || case when q.id = q.source then '{}' else jsonb_build_object('from_queue', q.source_name) end
    from q cross join job cross join revived r
    where q.journal <> 'off'
), left_behind as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
    select 'discarded', job.now, q.source, l.key, l.version, l.attempt, l.priority, l.due_at,
        jsonb_build_object('redriven_to', q.name, 'job', job.id)
    from q cross join job cross join revived r join locked l on l.version = r.origin
    where q.id <> q.source and q.source_journal <> 'off'
), deaths as materialized (
    select d.died_at, d.version, d.origin < job.before_version and d.version > job.before_version as is_ours
    from job cross join lateral (
        select died_at, version, origin from tarry.dead_letter
        where job.stop_above is not null and queue = (select id from q) and (died_at, version) > (job.judged_at, job.judged_version)
          and died_at < job.now - interval '1s'
        order by died_at, version limit 5000
    ) d
), judged as materialized (
    select died_at, version from deaths order by died_at desc, version desc limit 1
), counted as materialized (
    select count(*) as n, coalesce(array_agg(version order by version), '{}') as versions,
        coalesce(array_agg(key order by version), '{}') as keys
    from revived
), outcome as materialized (
    select job.id, job.now, c.n, job.phase = 'canary' as first, job.canaries || c.versions as canaries,
        job.canary_keys || c.keys as canary_keys,
        %(ended)s::boolean and (job.phase = 'rest' or cardinality(job.canaries) + c.n = 0) as done,
        %(ended)s::boolean or cardinality(job.canaries) + c.n >= job.canary as complete
    from job cross join counted c
)
update tarry.redrive_job j
set step = j.step + 1, redriven = j.redriven + o.n, skipped = j.skipped + cardinality(%(versions)s::bigint[]) - o.n,
    died_again = j.died_again + (select count(*) from deaths where is_ours),
    judged_at = coalesce((select died_at from judged), j.judged_at),
    judged_version = coalesce((select version from judged), j.judged_version),
    after_died_at = coalesce(%(edge_died_at)s::timestamptz, j.after_died_at),
    after_version = coalesce(%(edge_version)s::bigint, j.after_version),
    canaries = case when o.first then o.canaries else j.canaries end,
    canary_keys = case when o.first then o.canary_keys else j.canary_keys end,
    phase = case when o.first and o.complete then 'verdict' else j.phase end,
    state = case when o.done then 'done' else j.state end, ended_at = case when o.done then o.now end,
    next_at = o.now + make_interval(secs => coalesce(o.n / j.rate, 0)), updated_at = o.now
from outcome o
where j.id = o.id
returning o.n as redriven, (
    select tarry.notify_waiters(q.id, q.name, (select min(due_at) from revived), o.now, array(select type from revived), o.n::int) from q
    where exists (select from tarry.waiter w where w.queue = q.id)) as notified

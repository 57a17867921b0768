-- The next dead letters of a redrive job in order of death, from its cursor: at most `walk`, along dead_letter_order,
-- dead_letter_group for one fingerprint, or the primary key. Returns which of them match the filter.
-- Each branch has a condition on the queue that only one index supports: no plan can use the wrong one.
select w.version, w.died_at,
    w.version < job.before_version and (job.died_to is null or w.died_at < job.died_to)
    and (job.type is null or w.type = job.type) and (job.key_prefix is null or starts_with(w.key, job.key_prefix)) as fits
from tarry.redrive_job job cross join lateral (
    (select d.version, d.died_at, d.type, d.key from tarry.dead_letter d
     where job.versions is null and job.fingerprint is null and d.queue = job.queue
       and (d.died_at, d.version) > (job.after_died_at, job.after_version) and d.died_at <= job.created_at
     order by d.died_at, d.version limit %(walk)s::int)
    union all
    (select d.version, d.died_at, d.type, d.key from tarry.dead_letter d
     where job.versions is null and d.fingerprint = job.fingerprint and (d.queue + 0) = job.queue
       and (d.died_at, d.version) > (job.after_died_at, job.after_version) and d.died_at <= job.created_at
     order by d.died_at, d.version limit %(walk)s::int)
    union all
    (select d.version, d.died_at, d.type, d.key from (select distinct unnest(job.versions) as version) v
     cross join lateral (select * from tarry.dead_letter where version = v.version offset 0) d
     where d.queue = job.queue and (job.fingerprint is null or d.fingerprint = job.fingerprint)
       and (d.died_at, d.version) > (job.after_died_at, job.after_version) and d.died_at <= job.created_at
     order by d.died_at, d.version limit %(walk)s::int)
) w
where job.id = %(job)s
order by w.died_at, w.version

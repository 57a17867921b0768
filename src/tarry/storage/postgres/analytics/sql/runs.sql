-- Job runs before a run, newest first. Uses the primary key, or the index pipeline_run_job.
select r.id, r.job, r.started_at, r.ended_at, r.state, r.summary, r.error,
    -- include: analytics/_is_locked
    as is_locked
from tarry.pipeline_run r
where (%(job)s::text is null or r.job = %(job)s) and (%(before)s::bigint is null or r.id < %(before)s)
order by r.id desc limit %(limit)s::int

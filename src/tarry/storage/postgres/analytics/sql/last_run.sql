-- The last completed run of a job, on one lake if given: where an incremental job continues, and how fresh its results
-- are. For the last run of any state see last_runs. Uses the index pipeline_run_job.
select id, job, started_at, ended_at, state, summary, error
from tarry.pipeline_run
where job = %(job)s and state = 'done' and (%(lake)s::text is null or summary ->> 'lake' = %(lake)s)
order by id desc
limit 1

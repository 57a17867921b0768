-- The last completed run of a job, on one lake if one is named: where an incremental job goes on from, and how fresh its
-- results are. How the last one went is pipeline_last_runs. Relies on pipeline_run_job.
select id, job, started_at, ended_at, state, summary, error
from tarry.pipeline_run
where job = %(job)s and state = 'done' and (%(lake)s::text is null or summary ->> 'lake' = %(lake)s)
order by id desc
limit 1

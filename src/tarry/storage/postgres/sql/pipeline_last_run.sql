-- The last completed run of a job: where an incremental job goes on from. Relies on pipeline_run_job.
select id, job, started_at, ended_at, state, summary, error
from tarry.pipeline_run
where job = %(job)s and state = 'done'
order by id desc
limit 1

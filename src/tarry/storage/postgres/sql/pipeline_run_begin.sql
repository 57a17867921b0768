-- Write down that a job begins. Whoever says so holds the job's lock, so an earlier run that still claims to be running
-- has died without a word.
with lost as (
    update tarry.pipeline_run set state = 'lost', ended_at = clock_timestamp()
    where job = %(job)s and state = 'running'
)
insert into tarry.pipeline_run (job) values (%(job)s) returning id, started_at

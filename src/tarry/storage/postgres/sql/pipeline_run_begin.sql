-- Write down that a job begins. Whoever says so holds a lock, so an earlier run of the job that was under the same lock
-- and still claims to be running has died without a word. Under another lock (another lake) it may well be alive.
-- A run that was begun before locks were written down counts as one under this lock. Relies on pipeline_run_job.
with lost as (
    update tarry.pipeline_run set state = 'lost', ended_at = clock_timestamp()
    where job = %(job)s and state = 'running' and coalesce(summary ->> 'alone_at', %(alone_at)s) = %(alone_at)s
)
insert into tarry.pipeline_run (job, summary)
values (%(job)s, jsonb_strip_nulls(jsonb_build_object('alone_at', %(alone_at)s::text, 'lake', %(lake)s::text)))
returning id, started_at

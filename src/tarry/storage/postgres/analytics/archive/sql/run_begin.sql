-- Record the start of a job. The caller holds the job's lock, so an earlier run under the same lock that is still in
-- state running has died. A run under another lock (another lake) may be alive. A run without a recorded lock, from an
-- older version, counts as one under this lock. Uses the index pipeline_run_job.
with lost as (
    update tarry.pipeline_run set state = 'lost', ended_at = clock_timestamp()
    where job = %(job)s and state = 'running' and coalesce(summary ->> 'lock', %(lock)s) = %(lock)s
)
insert into tarry.pipeline_run (job, summary)
values (%(job)s, jsonb_strip_nulls(jsonb_build_object('lock', %(lock)s::text, 'lake', %(lake)s::text)))
returning id, started_at

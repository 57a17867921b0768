-- The last run of each of these jobs on each lake, in any state, for display. A run without a lake is returned only if
-- it is the very last. Looks at the last thousand runs of a job, so that the cost does not grow with every run.
-- `is_locked` is false for a run in state running whose advisory lock (analytics/lock) is not held. Uses the index
-- pipeline_run_job.
select r.id, r.job, r.started_at, r.ended_at, r.state, r.summary, r.error,
    -- include: analytics/_is_locked
    as is_locked
from unnest(%(jobs)s::text[]) with ordinality as wanted (job, position)
cross join lateral (
    select distinct on (summary ->> 'lake') *, id = max(id) over () as is_last
    from (select * from tarry.pipeline_run where job = wanted.job order by id desc limit 1000) recent
    order by summary ->> 'lake', id desc
) r
where r.is_last or r.summary ->> 'lake' is not null
order by wanted.position, r.summary ->> 'lake'

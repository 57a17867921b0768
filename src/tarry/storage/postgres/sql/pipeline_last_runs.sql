-- The last run of each of these jobs on each lake, in any state, for display. A run without a lake is returned only if
-- it is the very last. Looks at the last thousand runs of a job, so that the cost does not grow with every run. The
-- last column is false for a run in state running whose advisory lock (pipeline_lock) is not held. Uses the index
-- pipeline_run_job.
select r.id, r.job, r.started_at, r.ended_at, r.state, r.summary, r.error,
    r.state <> 'running' or r.summary ->> 'alone_at' is null or exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
          and l.database = (select oid from pg_database where datname = current_database())
          and (l.classid::bigint << 32) | l.objid::bigint
              = hashtextextended('tarry.pipeline ' || (r.summary ->> 'alone_at'), 0)
    )
from unnest(%(jobs)s::text[]) with ordinality as asked (job, place)
cross join lateral (
    select distinct on (summary ->> 'lake') *, id = max(id) over () as is_last
    from (select * from tarry.pipeline_run where job = asked.job order by id desc limit 1000) recent
    order by summary ->> 'lake', id desc
) r
where r.is_last or r.summary ->> 'lake' is not null
order by asked.place, r.summary ->> 'lake'

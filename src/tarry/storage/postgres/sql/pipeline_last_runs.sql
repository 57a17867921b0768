-- The last run of each of these jobs, however it went: what people ask for. The last column is false for one that claims
-- to be running while nobody holds its lock (that of pipeline_lock). Relies on pipeline_run_job.
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
    select * from tarry.pipeline_run where job = asked.job order by id desc limit 1
) r
order by asked.place

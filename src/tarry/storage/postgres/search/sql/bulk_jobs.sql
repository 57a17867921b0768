-- Bulk jobs, newest first: one by its id, or all, or running jobs without recent progress. Relies on the primary key and on
-- bulk_job_running.
select
    -- include: search/_bulk_job
from tarry.bulk_job j
where (%(job)s::bigint is null or j.id = %(job)s)
  and (%(idle_for)s::interval is null
       or (j.state = 'running' and j.updated_at < coalesce(%(now)s::timestamptz, clock_timestamp()) - %(idle_for)s::interval))
order by j.id desc
limit %(limit)s::int

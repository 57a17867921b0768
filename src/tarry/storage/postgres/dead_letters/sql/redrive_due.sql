-- The running job that has waited longest for its next step, or the given job if it is due. Relies on redrive_job_running.
select
    -- include: dead_letters/_job
from tarry.redrive_job j join tarry.queue q on q.id = j.queue left join tarry.queue t on t.id = j.target
where j.state = 'running' and j.next_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
  and (%(job)s::bigint is null or j.id = %(job)s)
order by j.next_at, j.id
limit 1

-- Redrive jobs, newest first: by id, by the request that created the job, by queue, or all.
select
    -- include: dead_letters/_job
from tarry.redrive_job j join tarry.queue q on q.id = j.queue left join tarry.queue t on t.id = j.target
where (%(job)s::bigint is null or j.id = %(job)s)
  and (%(request)s::uuid is null or j.request = %(request)s)
  and (%(queue)s::text is null or (q.name = %(queue)s and q.deleted_at is null))
order by j.id desc
limit %(limit)s::int

-- Redrive jobs, the newest first: one by its id or by the request that made it, those of a queue, or all.
select j.id, q.name, j.fingerprint, j.type, j.died_from, j.died_to, j.key_prefix, j.versions, j.state, j.phase, j.total,
    j.total_capped, j.created_at, j.updated_at, j.next_at, j.rate, j.canary, j.reason, j.who, j.redriven, j.skipped,
    j.canaries, j.canary_keys, j.step, j.ended_at, q.deleted_at is not null
from tarry.redrive_job j join tarry.queue q on q.id = j.queue
where (%(job)s::bigint is null or j.id = %(job)s)
  and (%(request)s::uuid is null or j.request = %(request)s)
  and (%(queue)s::text is null or (q.name = %(queue)s and q.deleted_at is null))
order by j.id desc
limit %(limit)s::int

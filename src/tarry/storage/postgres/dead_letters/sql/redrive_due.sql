-- The running job that has waited longest for its next step, or this one if its time has come. Relies on
-- redrive_job_running.
select j.id, q.name, j.fingerprint, j.type, j.died_from, j.died_to, j.key_prefix, j.versions, j.state, j.phase, j.total,
    j.total_capped, j.created_at, j.updated_at, j.next_at, j.rate, j.canary, j.reason, j.who, j.redriven, j.skipped,
    j.canaries, j.canary_keys, j.step, j.ended_at, q.deleted_at is not null
from tarry.redrive_job j join tarry.queue q on q.id = j.queue
where j.state = 'running' and j.next_at <= coalesce(%(now)s::timestamptz, clock_timestamp())
  and (%(job)s::bigint is null or j.id = %(job)s)
order by j.next_at, j.id
limit 1

-- The columns of `RedriveJob` for a job `j`, its queue `q` and its target `t`.
j.id, q.name as queue, j.fingerprint, j.type, j.died_from, j.died_to, j.key_prefix, j.versions, j.state, j.phase, j.total,
j.total_capped, j.created_at, j.updated_at, j.next_at, j.rate, j.canary, j.reason, j.started_by, j.redriven, j.skipped, j.canaries,
j.canary_keys, j.jitter, j.stop_above, j.max_attempts, j.died_again, j.step, j.ended_at, t.name as target,
case when q.deleted_at is not null then q.name when t.deleted_at is not null then t.name end as gone_queue

-- The columns of `BulkJob` for a job `j`.
j.id, j.verb, j.query, j.queues, j.error, j.started_by, j.state, j.reason, j.changed, j.skipped, j.after_due_at, j.after_version,
j.step, j.created_at, j.updated_at, j.ended_at

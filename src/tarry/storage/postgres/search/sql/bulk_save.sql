-- Add the progress of a step to a bulk job, if no other process has executed that step. A job that was stopped during the step
-- stays stopped, and the progress of the step is counted. Without a step: stop a running job.
update tarry.bulk_job j
set changed = j.changed + %(changed)s::bigint, skipped = j.skipped + %(skipped)s::bigint,
    after_due_at = coalesce(%(after_due_at)s::timestamptz, j.after_due_at),
    after_version = coalesce(%(after_version)s::bigint, j.after_version),
    state = case when j.state = 'running' then %(state)s else j.state end, reason = coalesce(%(reason)s, j.reason),
    step = j.step + (%(step)s::bigint is not null)::int, updated_at = t.now,
    ended_at = case when j.state = 'running' and %(state)s = 'running' then null else coalesce(j.ended_at, t.now) end
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
where j.id = %(job)s and case when %(step)s::bigint is null then j.state = 'running' else j.step = %(step)s::bigint end
returning
    -- include: search/_bulk_job

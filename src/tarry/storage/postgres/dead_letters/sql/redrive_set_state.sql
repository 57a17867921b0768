-- Change what a redrive job does: pause, resume, cancel, or what the verdict on its canaries says. Only from a state that
-- allows it, and, where a step is named, only if nobody was faster.
with lead as materialized (
    select 1 from tarry.leader
    where name = %(leader)s and fence = %(fence)s and lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    for share
), moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
)
update tarry.redrive_job j
set state = coalesce(%(state)s::text, j.state), phase = coalesce(%(phase)s::text, j.phase),
    reason = case when %(state)s::text is null then j.reason else %(reason)s end,
    step = j.step + 1, updated_at = moment.now,
    next_at = moment.now + make_interval(secs => %(rest_for)s::float8),
    ended_at = case when %(state)s::text in ('cancelled', 'done', 'failed') then moment.now end
from moment
where j.id = %(job)s and (%(step)s::bigint is null or j.step = %(step)s) and j.state = any (%(from_states)s::text[])
  and (%(leader)s::text is null or exists (select from lead))
returning j.id

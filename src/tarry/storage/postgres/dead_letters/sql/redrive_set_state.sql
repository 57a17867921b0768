-- Change the state of a redrive job: pause, resume, cancel, the verdict on its canaries, or a stop because of failures. Only from
-- a state that allows it and, if a step is given, only if that is still the next step.
with
-- include: maintenance/_leadership
, moment as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now
)
update tarry.redrive_job j
set state = coalesce(%(state)s::text, j.state), phase = coalesce(%(phase)s::text, j.phase),
    reason = case when %(state)s::text is null then j.reason else %(reason)s end,
    stop_above = case when %(lifts_stop)s::boolean then null else j.stop_above end, step = j.step + 1, updated_at = moment.now,
    next_at = moment.now + make_interval(secs => %(rest_for)s::float8),
    ended_at = case when %(state)s::text in ('cancelled', 'done', 'failed') then moment.now end
from moment
where j.id = %(job)s and (%(step)s::bigint is null or j.step = %(step)s) and j.state = any (%(from_states)s::text[])
  and (%(leader)s::text is null or exists (select from leadership))
returning j.id

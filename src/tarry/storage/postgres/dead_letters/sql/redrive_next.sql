-- The time until a running redrive job is due. Relies on redrive_job_running.
select case when min(next_at) is not null
    then greatest(min(next_at) - coalesce(%(now)s::timestamptz, clock_timestamp()), interval '0') end as wait_for
from tarry.redrive_job where state = 'running'

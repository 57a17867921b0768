-- The time until a running redrive job is due. Relies on redrive_job_running.
select min(next_at) - coalesce(%(now)s::timestamptz, clock_timestamp()) as wait_for from tarry.redrive_job where state = 'running'

-- How long until a running redrive job has something to do. Relies on redrive_job_running.
select min(next_at) - coalesce(%(now)s::timestamptz, clock_timestamp()) from tarry.redrive_job where state = 'running'

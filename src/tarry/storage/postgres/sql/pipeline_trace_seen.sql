-- Up to which run of the tracing a job has worked.
select run_id from tarry.trace_reader where lake = %(lake)s and job = %(job)s

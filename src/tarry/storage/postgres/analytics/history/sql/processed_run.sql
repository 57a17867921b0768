-- The run of the history up to which a job has processed parts.
select run_id from tarry.trace_reader where lake = %(lake)s and job = %(job)s

-- Record the run of the history up to which a job has processed parts; never moves backwards.
insert into tarry.trace_reader as r (lake, job, run_id) values (%(lake)s, %(job)s, %(run_id)s)
on conflict (lake, job) do update set run_id = excluded.run_id where r.run_id < excluded.run_id

-- Register a task's attempt. Its rows carry this id and are merged only if the driver names it.
insert into tarry.sink_attempt (write, run, started_at)
values (%(write)s, %(run)s, clock_timestamp())
returning id

-- Write down how a run ended, unless somebody has declared it lost meanwhile.
update tarry.pipeline_run
set state = %(state)s, summary = %(summary)s, error = %(error)s, ended_at = clock_timestamp()
where id = %(id)s and state = 'running'

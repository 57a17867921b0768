-- Runs of all jobs, every five minutes.
insert into tarry.pipeline_run (job, started_at, ended_at, state, summary)
select (array['archive', 'metrics', 'anomalies', 'forecast', 'verify'])[1 + n %% 5], at, at + interval '17 seconds', 'done', '{}'
from (select n, now() - n * interval '5 minutes' as at from generate_series(%(runs)s, 1, -1) n) rows

-- Bulk jobs that are done.
insert into tarry.bulk_job (verb, query, queues, started_by, state, changed, created_at, updated_at, ended_at)
select 'drop', 'queue:queue-00000', array['queue-00000'], 'ana', 'done', 500, at, at, at
from (select now() - n * interval '1 minute' as at from generate_series(%(bulk_jobs)s, 1, -1) n) rows

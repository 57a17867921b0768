-- Redrive jobs that are done.
insert into tarry.redrive_job (request, queue, canary, state, phase, total, total_capped, redriven, before_version,
    after_died_at, next_at, created_at, updated_at, ended_at)
select gen_random_uuid(), 1 + n %% %(queues)s, 0, 'done', 'rest', 500, false, 500, 1, at, at, at, at, at
from (select n, now() - n * interval '1 minute' as at from generate_series(1, %(redrives)s) n) rows

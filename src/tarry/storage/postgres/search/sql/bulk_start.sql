-- Store a bulk job, which the calling process then runs.
insert into tarry.bulk_job as j (verb, query, queues, error, started_by, state, created_at, updated_at)
select %(verb)s, %(query)s, %(queues)s::text[], %(error)s, %(started_by)s, 'running', t.now, t.now
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
returning
    -- include: search/_bulk_job

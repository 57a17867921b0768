-- By id: a queue that was renamed has one history. Its name is the last one.
select date, queue_id, max_by(queue, last_id) as queue, count(*) as messages,
    count(*) filter (where outcome = 'done') as done,
    quantile_cont(wait_s, 0.95) as wait_p95_s,
    avg((wait_s <= 60)::int) as on_time
from {{ source('lake', 'facts') }}
where first_leased_at is not null
group by date, queue_id

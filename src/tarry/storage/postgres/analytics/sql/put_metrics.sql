-- Upsert metric minutes. Unchanged rows are not touched: no dead rows, and `fresh_at` stays correct. In key order, so
-- two writers cannot deadlock.
with put as (
    insert into tarry.metric_minute as m
    select * from json_populate_recordset(null::tarry.metric_minute, %(rows)s::json) order by queue_id, minute
    on conflict (queue_id, minute) do update
    set (queue, offered, updated, redriven, leased, acked, nacked, released, expired, buried, dropped, discarded,
         refused, bytes_offered, depth, dead, lag_p50_s, lag_p95_s, lag_p99_s, wait_p50_s, wait_p95_s, wait_p99_s,
         processing_p50_s, processing_p95_s, processing_p99_s, exact, run_id, fresh_at)
        = (excluded.queue, excluded.offered, excluded.updated, excluded.redriven, excluded.leased, excluded.acked,
           excluded.nacked, excluded.released, excluded.expired, excluded.buried, excluded.dropped,
           excluded.discarded, excluded.refused, excluded.bytes_offered, excluded.depth, excluded.dead,
           excluded.lag_p50_s, excluded.lag_p95_s, excluded.lag_p99_s, excluded.wait_p50_s, excluded.wait_p95_s,
           excluded.wait_p99_s, excluded.processing_p50_s, excluded.processing_p95_s, excluded.processing_p99_s,
           excluded.exact, excluded.run_id, excluded.fresh_at)
    where to_jsonb(m) - 'run_id' - 'fresh_at' <> to_jsonb(excluded) - 'run_id' - 'fresh_at'
    returning 1
)
select count(*) from put

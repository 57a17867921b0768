-- Upsert hours of consumers. Unchanged rows are not touched, see put_metrics.
with put as (
    insert into tarry.consumer_hour as m
    select * from json_populate_recordset(null::tarry.consumer_hour, %(rows)s::json) order by queue_id, hour, consumer
    on conflict (queue_id, hour, consumer) do update
    set (queue, leased, acked, failed, expired, released, success_rate, share, processing_p50_s, processing_p95_s,
         processing_p99_s, exact, run_id, fresh_at)
        = (excluded.queue, excluded.leased, excluded.acked, excluded.failed, excluded.expired, excluded.released,
           excluded.success_rate, excluded.share, excluded.processing_p50_s, excluded.processing_p95_s,
           excluded.processing_p99_s, excluded.exact, excluded.run_id, excluded.fresh_at)
    where to_jsonb(m) - 'run_id' - 'fresh_at' <> to_jsonb(excluded) - 'run_id' - 'fresh_at'
    returning 1
)
select count(*) from put

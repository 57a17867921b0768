-- Upsert the usual values computed by a run. Unchanged rows are not touched. In key order, so two writers cannot
-- deadlock.
with put as (
    insert into tarry.metric_band as b
    select * from json_populate_recordset(null::tarry.metric_band, %(rows)s::json)
    order by queue_id, metric, hour_of_week
    on conflict (queue_id, metric, hour_of_week) do update
    set (queue, low, middle, high, minutes, run_id, fresh_at)
        = (excluded.queue, excluded.low, excluded.middle, excluded.high, excluded.minutes, excluded.run_id,
           excluded.fresh_at)
    where (b.queue, b.low, b.middle, b.high, b.minutes)
        is distinct from (excluded.queue, excluded.low, excluded.middle, excluded.high, excluded.minutes)
    returning 1
)
select count(*) from put

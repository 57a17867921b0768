-- Upsert the forecast per queue. Always written: a forecast is as fresh as its run.
with put as (
    insert into tarry.forecast as m
    select * from json_populate_recordset(null::tarry.forecast, %(rows)s::json) order by queue_id
    on conflict (queue_id) do update
    set (queue, planned, retries, capacity, saturated_at, recovered_at, peak_backlog, peak_at, sentence, run_id,
         fresh_at)
        = (excluded.queue, excluded.planned, excluded.retries, excluded.capacity, excluded.saturated_at,
           excluded.recovered_at, excluded.peak_backlog, excluded.peak_at, excluded.sentence, excluded.run_id,
           excluded.fresh_at)
    returning 1
)
select count(*) from put

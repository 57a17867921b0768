-- Upsert the forecast per queue and minute. Always written, so that keep_forecast can find outdated rows.
with put as (
    insert into tarry.forecast_minute as m
    select * from json_populate_recordset(null::tarry.forecast_minute, %(rows)s::json) order by queue_id, minute
    on conflict (queue_id, minute) do update
    set (queue, planned, retries, backlog, lag_s, saturated, run_id, fresh_at)
        = (excluded.queue, excluded.planned, excluded.retries, excluded.backlog, excluded.lag_s,
           excluded.saturated, excluded.run_id, excluded.fresh_at)
    returning 1
)
select count(*) from put

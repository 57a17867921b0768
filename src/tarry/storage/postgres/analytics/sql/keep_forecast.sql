-- Delete forecast rows of earlier runs.
with queues as (
    delete from tarry.forecast where run_id <> %(run_id)s
), minutes as (
    delete from tarry.forecast_minute where run_id <> %(run_id)s returning 1
)
select count(*) from minutes

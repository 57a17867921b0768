-- The first day of history that each queue retains.
select id, ((clock_timestamp() - retention_for) at time zone 'UTC')::date from tarry.queue

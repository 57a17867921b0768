-- The first day of history that each queue retains.
select id as queue_id, ((clock_timestamp() - retention_for) at time zone 'UTC')::date as day from tarry.queue

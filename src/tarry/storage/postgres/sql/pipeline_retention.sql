-- From which day on each queue wants its history kept.
select id, ((clock_timestamp() - retention_for) at time zone 'UTC')::date from tarry.queue

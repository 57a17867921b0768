-- The current time of the database's clock.
select coalesce(%(now)s::timestamptz, clock_timestamp()) as now

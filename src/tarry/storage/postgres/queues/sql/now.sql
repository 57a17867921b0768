-- The current time by the clock of the database.
select coalesce(%(now)s::timestamptz, clock_timestamp()) as now

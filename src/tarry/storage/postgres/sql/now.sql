-- What time it is, by the clock that decides.
select coalesce(%(now)s::timestamptz, clock_timestamp())

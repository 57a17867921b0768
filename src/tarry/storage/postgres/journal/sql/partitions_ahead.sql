-- Create the journal partitions of today and the next days, if this role may, and return the numbers of created and existing
-- ones, and whether the overflow has events. The wait is limited as in `partitions`.
with
-- include: maintenance/_leadership
, timeout as materialized (
    select set_config('lock_timeout', '2s', true)
), may as materialized (
    select has_schema_privilege('tarry', 'create') and pg_has_role(c.relowner, 'usage')
        and (%(leader)s::text is null or exists (select from leadership)) as may
    from pg_class c cross join timeout where c.oid = 'tarry.event'::regclass
), made as materialized (
    select case when may.may then tarry.journal_partition(day::date) else false end as made, day
    from may cross join
        generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %(days)s::int, '1 day') day
)
select count(*) filter (where made) as made, count(*) filter (where made or exists (
        select from pg_class where relnamespace = 'tarry'::regnamespace and relname = 'event_' || to_char(day, 'YYYYMMDD'))) as ahead,
    count(*) as required, exists (select from tarry.event_overflow) as overflowing
from made

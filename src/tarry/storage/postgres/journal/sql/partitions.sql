-- Create the partitions of today and the next days. This waits for readers of the journal and writers of its overflow, and all
-- others wait behind it: so the wait is limited.
with timeout as materialized (
    select set_config('lock_timeout', '2s', true)
)
select count(*) filter (where tarry.journal_partition(day::date))
from timeout cross join
    generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %(days)s::int, '1 day') day

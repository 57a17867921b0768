-- See to it that today and the next days have their partition of the journal. Making one waits for everybody who reads
-- the journal or writes into its overflow, and everybody else would wait behind us: so not for long.
with patience as materialized (
    select set_config('lock_timeout', '2s', true)
)
select count(*) filter (where tarry.journal_partition(day::date))
from patience cross join
    generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %(days)s::int, '1 day') day

-- See to it that today and the next days have their partition of the journal.
select count(*) filter (where tarry.journal_partition(day::date))
from generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + %(days)s::int, '1 day') day

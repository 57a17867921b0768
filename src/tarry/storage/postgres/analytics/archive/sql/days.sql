-- The day accounts of a lake.
select day, rows, checksum, pruned_rows, pruned_checksum, retired_rows, retired_checksum
from tarry.archive_day
where lake = %(lake)s
order by day

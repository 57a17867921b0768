-- The newest day accounts of every lake.
select lake, day, rows, checksum, pruned_rows, pruned_checksum, retired_rows, retired_checksum
from tarry.archive_day
where lake <> ''
order by day desc, lake limit %(limit)s::int

-- The newest day accounts of every lake.
select lake, day, jsonb_build_object('rows', rows, 'checksum', checksum) as archived,
    jsonb_build_object('rows', pruned_rows, 'checksum', pruned_checksum) as pruned,
    jsonb_build_object('rows', retired_rows, 'checksum', retired_checksum) as retired
from tarry.archive_day
where lake <> ''
order by day desc, lake limit %(limit)s::int

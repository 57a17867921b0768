-- Add rows removed by retention to the account of a day.
update tarry.archive_day
set retired_rows = retired_rows + %(rows)s, retired_checksum = mod(retired_checksum + %(checksum)s, 18446744073709551616)
where lake = %(lake)s and day = %(day)s

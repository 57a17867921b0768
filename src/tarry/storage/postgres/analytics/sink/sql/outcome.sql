-- The outcome of a write by its id.
select
-- include: analytics/sink/_write
from tarry.sink_write
where write_id = %(write_id)s

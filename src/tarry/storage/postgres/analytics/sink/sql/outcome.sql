-- The outcome of a write by its id.
select id, write_id, state, rows, created, updated, ignored, superseded, committed_at
from tarry.sink_write
where write_id = %(write_id)s

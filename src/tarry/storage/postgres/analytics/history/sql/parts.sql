-- The parts of a lake's history.
select day, run_id, rows from tarry.trace_part where lake = %(lake)s and kind = %(kind)s order by day, run_id

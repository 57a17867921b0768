-- The position that the history of a lake has reached.
select lake, position, snapshot, system_id, run_id from tarry.trace_head where lake = %(lake)s

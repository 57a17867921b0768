-- The position up to which a lake has been traced.
select lake, place, snapshot, system_id, run_id from tarry.trace_head where lake = %(lake)s

-- The last completed round of a lake and the planned one, if any. At most one row of each: see finish.
select lake, number, position, snapshot, system_id, is_done from tarry.lake_round where lake = %(lake)s

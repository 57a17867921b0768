-- Plan the next round of a lake. The unique index lake_round_planned excludes a second planner.
insert into tarry.lake_round (lake, number, position, snapshot, system_id)
values (%(lake)s, %(number)s, %(position)s, %(snapshot)s, %(system_id)s)

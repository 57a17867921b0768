-- Insert the parts that a run wrote, and delete those that it merged into them.
with gone as (
    delete from tarry.trace_part p using unnest(%(merged_kinds)s::text[], %(merged_days)s::date[], %(merged_runs)s::bigint[])
        as m(kind, day, run_id)
    where p.lake = %(lake)s and (p.kind, p.day, p.run_id) = (m.kind, m.day, m.run_id)
)
insert into tarry.trace_part (lake, kind, day, run_id, rows)
select %(lake)s, kind, day, %(run_id)s, rows
from unnest(%(kinds)s::text[], %(days)s::date[], %(rows)s::bigint[]) as a(kind, day, rows)

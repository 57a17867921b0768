-- The tasks of a write that are already stored, and whether this driver's attempt of each has the same rows.
select m.id, m.part, m.rows, m.created, m.updated, m.superseded, m.id = a.id or m.digest = d.digest as same
from tarry.sink_attempt m
left join unnest(%(attempts)s::bigint[], %(parts)s::int[]) as a(id, part) on a.part = m.part
left join lateral (
    select
    -- include: analytics/sink/_digest
    as digest
    from tarry.sink_row r where r.attempt = a.id and m.id <> a.id
) d on true
where m.write = %(write)s and m.part is not null

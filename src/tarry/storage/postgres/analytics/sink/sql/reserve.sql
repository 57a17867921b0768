-- Reserve one version per row of the write, and read the clock. Versions increase in the order of the rows, independent
-- of the order of the merge. Other sessions take versions meanwhile, so the result is a list of ranges: row n has
-- version bases[k] + n in the range k that begins at starts[k].
with taken as materialized (
    select v, row_number() over () as n
    from (select nextval('tarry.version_seq') as v from generate_series(1, %(n)s::bigint)) s
), range as (
    select min(n) as start, v - n as base from taken group by v - n
)
select coalesce(%(now)s::timestamptz, statement_timestamp()) as now, array_agg(start order by start) as starts,
    array_agg(base order by start) as bases
from range

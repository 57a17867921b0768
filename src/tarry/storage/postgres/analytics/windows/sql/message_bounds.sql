-- Keys that divide the live messages into about equal parts, from a sample of blocks. Fewer if the sample has fewer.
select distinct key::text collate "C" as bound
from (
    select key, row_number() over (order by key) as n, count(*) over () as sampled
    from tarry.message tablesample system (%(percent)s::real)
) sample
where n %% greatest(1, sampled / %(parts)s::bigint) = 0
order by 1
limit %(parts)s::bigint - 1

-- Versions that divide the dead letters into about equal parts, from a sample of blocks. Fewer if the sample has fewer.
select distinct version as bound
from (
    select version, row_number() over (order by version) as n, count(*) over () as sampled
    from tarry.dead_letter tablesample system (%(percent)s::real)
) sample
where n %% greatest(1, sampled / %(parts)s::bigint) = 0
order by 1
limit %(parts)s::bigint - 1

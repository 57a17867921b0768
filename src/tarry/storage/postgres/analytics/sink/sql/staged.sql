-- Count the staged rows of these attempts and lock the attempts against the sweeper until the merge is done. Fewer rows
-- than the tasks reported means that a crash emptied the unlogged staging table.
with held as materialized (
    select id from tarry.sink_attempt where id = any (%(attempts)s::bigint[]) order by id for key share
)
select h.id, count(r.attempt) as rows, coalesce(sum(octet_length(r.key) + octet_length(r.payload)), 0)::bigint as size
from held h
left join tarry.sink_row r on r.attempt = h.id
group by h.id

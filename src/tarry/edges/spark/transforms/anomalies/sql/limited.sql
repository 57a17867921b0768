-- At most some rows per queue and hour, the first ones; the last of them states how many more there were. The id is a stable
-- order, so that every run keeps the same rows.
with ranked as (
    select *, row_number() over (partition by queue_id, floor(unix_seconds(window_from) / 3600) order by id) as rank,
        count(*) over (partition by queue_id, floor(unix_seconds(window_from) / 3600)) as n
    from {findings}
)
select * except (sentence, rank, n),
    if(rank = :most and n > :most, concat(sentence, format_string(' There were %d more in this hour.', n - :most)), sentence)
        as sentence
from ranked
where rank <= :most

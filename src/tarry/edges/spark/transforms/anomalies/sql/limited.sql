-- At most some rows per queue and hour, with those that earlier runs have raised; the last of them states how many more there
-- were. The id is a stable order.
with hourly as (
    select *, floor(unix_seconds(window_from) / 3600) as hour from {findings}
), ranked as (
    select /*+ broadcast(raised) */ hourly.* except (hour),
        coalesce(raised.n, 0) + row_number() over (partition by hourly.queue_id, hourly.hour order by id) as rank,
        coalesce(raised.n, 0) + count(*) over (partition by hourly.queue_id, hourly.hour) as n
    from hourly
    left join {raised} raised on raised.queue_id = hourly.queue_id and raised.hour = hourly.hour
)
select * except (sentence, rank, n),
    if(rank = :most and n > :most, concat(sentence, format_string(' There were %d more in this hour.', n - :most)), sentence)
        as sentence
from ranked
where rank <= :most

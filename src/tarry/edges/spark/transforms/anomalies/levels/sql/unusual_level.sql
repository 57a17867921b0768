-- The incidents of one metric in words. Counts are judged by their square root and durations by their logarithm; here they
-- are counts and seconds again. The depth is in no single event: its evidence is the change by each minute.
with described as (
    select *, worst_value.value as observed, worst_value.score as score, worst_value.metric as metric,
        if(metric in ('failed', 'processing', 'lag'), null, {low}) as expected_low, {high} as expected_high,
        window_from - interval 35 minute as since, window_to + interval 5 minute as until
    from {incidents}
), worded as (
    select *,
        case metric when 'offered' then 'messages were offered' when 'acked' then 'messages were acked'
            when 'failed' then 'deliveries failed' when 'processing' then 'was the processing time (p95)'
            when 'lag' then 'was the delivery lag (p95)' when 'depth' then 'messages were live' end as happened,
        case when metric in ('processing', 'lag') then text'{observed:s}' when observed = 0 then 'no'
            else text'{observed:number}' end as seen,
        case when metric in ('processing', 'lag') then text'up to {expected_high:s}'
            when metric = 'failed' then text'up to {expected_high:number}'
            else text'{expected_low:number} to {expected_high:number}' end as usual,
        concat(worst_value.scale, ' minutes up to') as span,
        int(round((unix_seconds(window_to) - unix_seconds(window_from)) / 60)) as lasted,
        case metric when 'offered' then "'offered', 'updated'" when 'acked' then "'acked'" when 'failed' then "'nacked', 'expired'"
            when 'processing' then "'acked', 'nacked'" when 'lag' then "'leased'"
            when 'depth' then "'offered', 'acked', 'buried', 'dropped'" end as kinds,
        case metric when 'processing' then 'percentile_cont(0.95) within group (order by at - leased_at) as p95'
            when 'lag' then 'percentile_cont(0.95) within group (order by at - due_at) as p95'
            when 'depth' then 'count(*) filter (where kind = ''offered'') - count(*) filter (where kind <> ''offered'') as net' else 'count(*)' end as measure
    from described
)
select queue_id, queue, window_from, window_to, observed, expected_low, expected_high, score,
    concat_ws('|', cast(unix_seconds(window_from) as string), cast(side as string)) as identity,
    text'Queue {queue}: {seen} {happened} in the {span} {worst:time} UTC, where {usual} is usual at this time of the week. It lasted {lasted} min.'
        as sentence,
    text'select date_trunc(''minute'', at) as minute, {measure} from tarry.journal where queue = {queue:sql} and kind in ({kinds}) and at >= {since:instant} and at < {until:instant} group by 1 order by 1'
        as evidence
from worded

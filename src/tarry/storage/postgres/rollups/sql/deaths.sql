-- Deaths of a queue's newest dead letters per slice, with their consumers, by fingerprint. At most `limit` letters are read;
-- those outside the window are in a row without a start. Relies on dead_letter_order.
select d.fingerprint, d.start_at, count(*)::int as deaths,
    coalesce(array_agg(distinct d.consumer) filter (where d.consumer is not null), '{}') as consumers
from tarry.queue q cross join lateral (
    select fingerprint, consumer,
        case when died_at >= %(since)s::timestamptz and died_at < %(until)s::timestamptz
            then date_bin(make_interval(secs => %(width)s), died_at, %(since)s::timestamptz) end as start_at
    from tarry.dead_letter where queue = q.id
    order by died_at desc, version desc limit %(limit)s::int
) d
where q.name = %(queue)s and q.deleted_at is null and d.fingerprint is not null
group by d.fingerprint, d.start_at
order by d.fingerprint, d.start_at

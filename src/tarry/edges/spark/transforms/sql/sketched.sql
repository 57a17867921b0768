-- Sketches of durations: how often each value occurred, in microseconds, per subject and measure. Sketches are merged by
-- adding frequencies. With more than `exact_up_to` different values they are rounded to buckets that grow by 1.01/0.99, each
-- represented by a value within 1 % of all its values; below 100 µs they stay as they are. A rounded value is in its own bucket.
with each as (
    select subject, measure, value, sum(n) as n from {tallies} where value is not null group by all
), counted as (
    select *, count(*) over (partition by subject, measure) > :exact_up_to as is_rounded from each
), kept as (
    select subject, measure, is_rounded, sum(n) as n,
        if(is_rounded and value >= 100, bigint(round(pow(1.01D / 0.99D, ceil(ln(value) / ln(1.01D / 0.99D))) * 0.99D)), value) as value
    from counted
    group by all
), measured as (
    select subject, measure, max(is_rounded) as is_rounded, map_from_entries(array_sort(collect_list(struct(value, n)))) as tally,
        transform(percentile(value, array(0.5, 0.95, 0.99), n), us -> round(us) / 1000000D) as seconds
    from kept
    group by subject, measure
)
select subject, max(is_rounded and measure in ('lag', 'wait', 'processing')) as is_rounded,
    map_from_entries(collect_list(struct(measure, struct(tally, seconds)))) as measures
from measured
group by subject

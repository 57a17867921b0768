-- The findings, with the start of the published one that they continue: same subject, overlapping in time. Of an anomaly that
-- began before the frames they show a part or nothing: its start, and thereby its identity, comes from the published one. If
-- that overlaps several, for example because late events split it, the first one takes over its start. A finding may have any
-- columns: none but those of its subject and its time are compared.
with spans as (
    select subject.*, spans
    from (select {subject} as subject, collect_list(struct(window_from, window_to)) as spans from {published} group by 1)
), once as (
    select /*+ broadcast(old) */ new.*, array_min(transform(
        filter(old.spans, span -> span.window_from <= new.window_to and span.window_to >= new.window_from),
        span -> span.window_from)) as began
    from {findings} new left join spans old on {same}
), ranked as (
    select *, rank() over (partition by {subject}, began order by window_from) as rank from once
)
select * except (window_from, began, rank), if(began is not null and rank = 1, least(began, window_from), window_from) as window_from
from ranked

-- The findings, with the start of the published one that they continue: same subject, overlapping in time. Of an anomaly that
-- began before the frames they show a part or nothing: its start, and thereby its identity, comes from the published one. If
-- that overlaps several, for example because late events split it, the first one takes over its start.
with once as (
    select /*+ broadcast(old) */ new.*, min(old.window_from) as began
    from {findings} new
    left join {published} old
        on {same} and old.window_from <= new.window_to and old.window_to >= new.window_from
    group by all
), ranked as (
    select *, row_number() over (partition by {subject}, began order by window_from) as rank from once
)
select * except (window_from, began, rank), if(began is not null and rank = 1, least(began, window_from), window_from) as window_from
from ranked

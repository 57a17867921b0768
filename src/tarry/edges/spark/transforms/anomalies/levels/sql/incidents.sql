-- Consecutive minutes on one side are one incident, represented by its worst minute.
with marked as (
    select *, int(coalesce(unix_seconds(minute) - unix_seconds(lag(minute) over of_side) > 60 * (:gap + 1), true)) as begins
    from {minutes}
    window of_side as (partition by queue_id, side order by minute)
), numbered as (
    select *, sum(begins) over (partition by queue_id, side order by minute) as incident from marked
), whole as (
    select queue_id, side, incident, max(queue) as queue, min(minute) as window_from,
        max(minute) + interval 1 minute as window_to, count(*) as minutes, max(weight) as weight,
        max_by(worst_value, weight) as worst_value, max_by(minute, weight) as worst
    from numbered
    group by queue_id, side, incident
)
select * from whole where minutes >= :lasting or weight >= 2

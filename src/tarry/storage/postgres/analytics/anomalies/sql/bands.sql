-- The usual values of a queue metric by hour of the week: at most 168 rows. Uses the primary key.
select hour_of_week, low, middle, high from tarry.metric_band
where queue_id = %(queue_id)s::int and metric = %(metric)s
order by hour_of_week

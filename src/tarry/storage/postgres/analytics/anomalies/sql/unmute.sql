-- Delete a mute. A mute that was only ended would still suppress the time range that it covered.
with gone as (delete from tarry.anomaly_mute where id = %(id)s::bigint returning 1)
select count(*) from gone

-- What was muted may be raised again; the row goes, or the next run would still spare the time that it covered.
with gone as (delete from tarry.anomaly_mute where id = %(id)s::bigint returning 1)
select count(*) from gone

-- The mutes in force, latest first.
select m.id, m.detector, q.name as queue, m.until, m.reason, m.muted_at
from tarry.anomaly_mute m left join tarry.queue q on q.id = m.queue_id
where coalesce(m.until, 'infinity') > clock_timestamp()
order by m.id desc

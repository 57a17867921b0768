-- Mute anomalies of one kind. At most one mute per kind is in force: repeating the request updates its end and its
-- reason, so that a retry after a lost response is harmless. Requires mute_lock; without it, concurrent
-- requests would create two.
with again as (
    update tarry.anomaly_mute m set until = %(until)s::timestamptz, reason = %(reason)s::text
    where m.detector is not distinct from %(detector)s::text and m.queue_id is not distinct from %(queue_id)s::int
      and coalesce(m.until, 'infinity') > clock_timestamp()
    returning m.id, m.detector, m.until, m.reason, m.muted_at
), fresh as (
    insert into tarry.anomaly_mute as m (detector, queue_id, until, reason)
    select %(detector)s::text, %(queue_id)s::int, %(until)s::timestamptz, %(reason)s::text
    where not exists (select from again)
    returning m.id, m.detector, m.until, m.reason, m.muted_at
)
select m.id, m.detector, %(queue)s::text as queue, m.until, m.reason, m.muted_at
from (select * from again union all select * from fresh) m

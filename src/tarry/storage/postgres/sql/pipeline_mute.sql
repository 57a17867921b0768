-- From now on nothing of this kind is raised.
insert into tarry.anomaly_mute as m (detector, queue_id, until, reason)
values (%(detector)s::text, %(queue_id)s::int, %(until)s::timestamptz, %(reason)s::text)
returning m.id, m.detector, %(queue)s::text, m.until, m.reason, m.muted_at

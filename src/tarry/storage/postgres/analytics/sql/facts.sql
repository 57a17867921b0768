-- Versions of one queue or all that ended in a time range, newest first.
select coalesce(q.name, m.queue) as queue, m.version, m.settled_at, m.offered_at, m.due_at, m.first_leased_at, m.origin,
    m.wait_s, m.processing_s, m.size, m.attempts, m.redeliveries, m.priority, m.outcome, m.reason, m.key,
    m.consumer, m.last_error, m.run_id, m.fresh_at
from tarry.message_fact m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
  and m.settled_at >= %(since)s and m.settled_at < %(until)s
  and (%(outcome)s::text is null or m.outcome = %(outcome)s)
order by m.settled_at desc, m.version desc
limit %(limit)s::int

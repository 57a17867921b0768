-- Upsert ended versions. `last_id` is the last event of a version: rows with an older or equal one are not written.
with put as (
    insert into tarry.message_fact as m
    select * from json_populate_recordset(null::tarry.message_fact, %(rows)s::json) order by queue_id, version
    on conflict (queue_id, version) do update
    set (settled_at, offered_at, due_at, first_leased_at, origin, last_id, wait_s, processing_s, size, attempts,
         redeliveries, releases, priority, queue, outcome, reason, key, consumer, last_error, run_id, fresh_at)
        = (excluded.settled_at, excluded.offered_at, excluded.due_at, excluded.first_leased_at, excluded.origin,
           excluded.last_id, excluded.wait_s, excluded.processing_s, excluded.size, excluded.attempts,
           excluded.redeliveries, excluded.releases, excluded.priority, excluded.queue, excluded.outcome,
           excluded.reason, excluded.key, excluded.consumer, excluded.last_error, excluded.run_id, excluded.fresh_at)
    where m.last_id < excluded.last_id
    returning 1
)
select count(*) from put

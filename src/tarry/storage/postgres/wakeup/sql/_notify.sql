-- Notify the processes that wait for queue `q` and sleep beyond the due time of a message of `d`. Usually none waits, and the
-- function, which decides exactly, is not called. The single-message variant needs no aggregates, whose node costs as much as
-- the index entries of the message.
case when exists (select from tarry.waiter w where w.queue = min(q.id) and w.wakes_at > min(d.due_at) - interval '1s') -- many
    then tarry.notify_waiters(min(q.id), %(queue)s::text, min(d.due_at), %(now)s::timestamptz, array_agg(d.type), count(d.key)::int) -- many
-- one: case when exists (select from tarry.waiter w where w.queue = q.id and w.wakes_at > d.due_at - interval '1s')
-- one:     then tarry.notify_waiters(q.id, %(queue)s::text, d.due_at, %(now)s::timestamptz, array[d.type], 1)
    end as notified

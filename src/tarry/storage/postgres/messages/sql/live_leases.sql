-- The queues and tokens of the messages of these leases: distinguishes a lost lease from a message that is gone, and both from a
-- message that was touched during the search. Also finds a message that is leased with this token in a queue that had this name
-- before: such rows come last, because the caller keeps the last row of a key. Relies on message_key (all queues of a key
-- are read); `offset 0` keeps each lookup a subquery, so that no plan reads the whole table.
select m.key, q.name, m.token
from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as h(key, token)
cross join lateral (select key, queue, token from tarry.message where key = h.key offset 0) m
cross join lateral (
    select name from tarry.queue
    where id = m.queue and deleted_at is null
      and (name = %(queue)s or (m.token = h.token and %(queue)s::text = any (former_names))) offset 0) q
order by m.token is not distinct from h.token

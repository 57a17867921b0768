-- Where the messages of these holds are: tells a lost lease from a message that is gone, and both from one that was only
-- touched while it was looked for. Also found is a message that is held with this token in a queue that was called so before:
-- such rows come last, because the caller keeps the last row of a key. Relies on message_key (all queues of a key are read).
select m.key, q.name, m.token
from unnest(%(keys)s::text[], %(tokens)s::uuid[]) as h(key, token)
join tarry.message m on m.key = h.key
join tarry.queue q on q.id = m.queue and q.deleted_at is null
where q.name = %(queue)s or (m.token = h.token and %(queue)s::text = any (q.former_names))
order by m.token is not distinct from h.token

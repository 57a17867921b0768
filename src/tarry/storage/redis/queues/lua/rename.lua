-- Change the name in the queue's own record, which decides: from now on calls by the old name find that it is not this one. Replies nil
-- if the queue has another name, or if the reservation of the new name was refused (`name.lua`), because another process needed it.
-- include: lua/_queue
-- include: lua/_journal
if a.reservation <= tonumber(redis.call('HGET', q, 'refused') or 0) then return false end
redis.call('HSET', q, 'name', a.new_name, 'updated_at', num(now))
queue.name = a.new_name
note_queue('queue_renamed', {from = a.queue, to = a.new_name})
return remember(redis.call('HGETALL', q))

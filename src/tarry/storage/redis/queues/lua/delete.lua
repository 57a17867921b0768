-- Take the name from the queue's record: no script accepts it afterwards, so nothing is offered to a queue that is being
-- deleted. Replies with the numbers of live and dead messages, and refuses if there are any and `force` is missing.
-- include: lua/_queue
-- include: lua/_journal
local live, dead = redis.call('HLEN', q .. ':rows'), redis.call('ZCARD', q .. ':dead')
if a.force or live + dead == 0 then
  redis.call('HDEL', q, 'name')
  redis.call('HSET', q, 'deleted', a.queue)
end
return remember({live, dead})

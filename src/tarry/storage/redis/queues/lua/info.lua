-- The record of a queue.
-- include: lua/_queue
return redis.call('HGETALL', q)

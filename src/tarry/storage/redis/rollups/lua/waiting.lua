-- Processes that wait for a message of this queue.
-- include: lua/_queue
return redis.call('HLEN', q .. ':waiters')

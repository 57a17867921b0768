-- Queues that are being deleted.
return redis.call('SMEMBERS', KEYS[1] .. ':deleting')

-- The name in the queue's own record, which decides; empty if it is deleted.
return redis.call('HGET', KEYS[1], 'name') or ''

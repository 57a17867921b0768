-- All names and their ids: one entry per queue, not per message.
return redis.call('HGETALL', KEYS[1] .. ':names')

-- Remove a worker that has stopped.
local a = cmsgpack.unpack(ARGV[1])
redis.call('HDEL', KEYS[1] .. ':workers', a.id)
return redis.call('HDEL', KEYS[1] .. ':drains', a.id)

-- Record that the deletion of a queue is complete.
local a = cmsgpack.unpack(ARGV[1])
return redis.call('SREM', KEYS[1] .. ':deleting', a.id)

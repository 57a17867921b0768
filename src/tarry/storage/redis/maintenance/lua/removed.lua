-- Nothing is left of a queue that was deleted.
local a = cmsgpack.unpack(ARGV[1])
return redis.call('SREM', KEYS[1] .. ':deleting', a.id)

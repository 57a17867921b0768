-- Forget a deleted queue whose journal has expired.
local a = cmsgpack.unpack(ARGV[1])
return redis.call('HDEL', KEYS[1] .. ':journals', a.id)

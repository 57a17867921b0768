-- A queue that was deleted, and whose journal has expired.
local a = cmsgpack.unpack(ARGV[1])
return redis.call('HDEL', KEYS[1] .. ':journals', a.id)

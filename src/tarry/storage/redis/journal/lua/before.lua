-- Events of one queue before an id, newest first.
local a = cmsgpack.unpack(ARGV[1])
return redis.call('XREVRANGE', KEYS[1] .. ':journal', a.before and '(' .. a.before or '+', '-', 'COUNT', a.limit)

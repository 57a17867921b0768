-- The identity of this journal, the server's time, and every queue that may have events, deleted ones included.
redis.call('HSETNX', KEYS[1] .. ':journal', 'name', cmsgpack.unpack(ARGV[1]).name)
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
return {redis.call('HGET', KEYS[1] .. ':journal', 'name'), now, redis.call('HGETALL', KEYS[1] .. ':journals')}

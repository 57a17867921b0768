#!lua
-- Write the settings of a new queue under its own id. No name leads to it until `register`, so nothing sees it half made.
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local created = string.format('%.0f', a.now or real)
redis.call('HSET', q, 'name', a.queue, 'created_at', created, 'event', string.format('%.0f', real))
for name, value in pairs(a.settings) do redis.call('HSET', q, name, value) end
local event = cmsgpack.pack({kind = 'queue_created', queue = a.queue, at = tonumber(created)})
redis.call('XADD', q .. ':journal', string.format('%.0f', real) .. '-0', 'e', event)
return redis.call('HGETALL', q)

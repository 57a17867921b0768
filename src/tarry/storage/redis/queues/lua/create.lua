#!lua
-- Write the settings of a new queue under its own id. No name leads to it until `register`, so nothing sees it half made.
-- include: lua/_layout
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local created = string.format('%.0f', a.now or real)
redis.call('HSET', q, 'name', a.queue, 'created_at', created, 'counters', struct.pack(counters, 0, real, 0))
for name, value in pairs(a.settings) do redis.call('HSET', q, name, value) end
local kind = 'queue_created'
local event = struct.pack('<dBc0BBc0HHII', tonumber(created), #a.queue, a.queue, 0, #kind, kind, 0, 0, 0, 0)  -- as `_journal.lua`
redis.call('XADD', q .. ':journal', string.format('%.0f', real) .. '-1', 'e', event)
return redis.call('HGETALL', q)

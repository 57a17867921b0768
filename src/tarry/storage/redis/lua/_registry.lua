-- The beginning of registry scripts: the clock, and the reply to a repeated request, as in `_queue.lua`.
local r = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local now = a.now or time[1] * 1000000 + time[2]
local kept = redis.call('GET', r .. ':request:' .. a.slot)
kept = kept and cmsgpack.unpack(kept)
if kept and kept[1] > a.request then return redis.error_reply('ERR a later request was executed') end
if kept and kept[1] == a.request then
  redis.call('PEXPIRE', r .. ':request:' .. a.slot, 60000)
  return kept[2]
end
local function num(n) return string.format('%.0f', n) end
local function remember(reply)
  redis.call('SET', r .. ':request:' .. a.slot, cmsgpack.pack({a.request, reply}), 'PX', 60000)
  return reply
end

-- The time, and API keys: those with the ids given, or all.
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local keys = {}
if a.ids then
  for _, id in ipairs(a.ids) do keys[#keys + 1] = redis.call('HGET', KEYS[1] .. ':api_keys', id) or nil end
else
  keys = redis.call('HVALS', KEYS[1] .. ':api_keys')
end
return {string.format('%.0f', a.now or time[1] * 1000000 + time[2]), keys}

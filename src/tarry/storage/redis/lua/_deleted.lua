-- As `_queue`, for a queue that is being deleted. Replies 0 if it is gone already.
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local now = a.now or real
local values = redis.call('HMGET', q, 'deleted', 'event', 'journal')
local queue = {name = values[1], event = values[2], journal = values[3]}
if not queue.name then return 0 end
local function num(n) return string.format('%.0f', n) end
local function next_of(counter)
  local value = math.max(tonumber(queue[counter] or 0) + 1, real)
  queue[counter] = value
  redis.call('HSET', q, counter, num(value))
  return value
end
local function remember(reply) return reply end

-- As `_queue`, for a queue that is being deleted. Replies 0 if it is gone already.
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local now = a.now or real
local fields = redis.call('HMGET', q, 'deleted', 'version', 'event', 'unmarked', 'journal')
local queue = {
  name = fields[1], version = tonumber(fields[2] or 0), event = tonumber(fields[3] or 0), unmarked = tonumber(fields[4] or 0),
  journal = fields[5],
}
if not queue.name then return 0 end
-- include: lua/_writes
local function remember(reply) return reply end

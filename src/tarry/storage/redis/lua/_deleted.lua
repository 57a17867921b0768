-- As `_queue`, for a queue that is being deleted. Replies as `queues/remove.lua` does at the end if it is gone already.
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local now = a.now or real
-- include: lua/_layout
local fields = redis.call('HMGET', q, 'deleted', 'counters', 'journal')
local version, event, unmarked = struct.unpack(counters, fields[2] or no_counters)
local queue = {name = fields[1], version = version, event = event, unmarked = unmarked, journal = fields[3]}
if not queue.name then return {0, {}} end
-- include: lua/_writes
local function remember(reply) return reply end

-- The beginning of every queue script: the queue's settings, the clock, and the reply to a repeated request.
-- Correct because Redis runs one script at a time, and every key begins with KEYS[1], whose hash tag is the queue's id.
-- A reply of nil means that the queue does not have (or no longer has) the given name, and that nothing was changed.
local q = KEYS[1]
local a = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local real = time[1] * 1000000 + time[2]
local now = a.now or real

-- include: lua/_layout
local fields = redis.call('HMGET', q, 'name', 'counters', 'lease_for', 'max_attempts', 'retry', 'journal', 'paused_at', 'priorities',
  'max_depth', 'repeated_at')

-- The reply to an earlier try of this request may be lost although the script was executed: for this store (`again` is 2), for the
-- cluster driver (1), or for another process if the caller named the request (`keep_for`). A slot has one request in flight,
-- so the queue keeps the last reply of each slot. A first try can also arrive after its repetition, from a connection that the
-- client gave up: while `repeated_at` is set, every request is compared, and one that is older than the last of its slot is refused.
local repeated_at = tonumber(fields[10])
local kept = (a.again or a.keep_for or repeated_at) and redis.call('GET', q .. ':request:' .. a.slot)
kept = kept and cmsgpack.unpack(kept)
if kept and not a.keep_for and kept[1] > a.request then return redis.error_reply('ERR a later request was executed') end
if kept and kept[1] ~= a.request then kept = nil end
-- A write, so that WAIT on this connection waits for the replicas, too.
if kept then redis.call('PEXPIRE', q .. ':request:' .. a.slot, math.floor((a.keep_for or 60000000) / 1000)) end
if kept and not a.nonce then return kept[2] end  -- a poll has a nonce, and reads its leases again

local version, event, unmarked = struct.unpack(counters, fields[2] or no_counters)
local queue = {
  name = fields[1], version = version, event = event, unmarked = unmarked, lease_for = fields[3], max_attempts = fields[4],
  retry = fields[5], journal = fields[6], paused_at = fields[7], priorities = fields[8], max_depth = fields[9],
}
if not queue.name or (a.queue and queue.name ~= a.queue) then return false end
if a.again == 2 and real - (repeated_at or 0) > 60000000 then
  redis.call('HSET', q, 'repeated_at', string.format('%d', real))
elseif repeated_at and real - repeated_at > 120000000 then
  redis.call('HDEL', q, 'repeated_at')
end
-- include: lua/_writes

-- Keep the reply for a repeated request: for a minute, or for `keep_for`.
local keep_ms = math.floor((a.keep_for or 60000000) / 1000)
local function remember(reply)
  write()
  if a.slot then redis.call('SET', q .. ':request:' .. a.slot, cmsgpack.pack({a.request, reply}), 'PX', keep_ms) end
  return reply
end

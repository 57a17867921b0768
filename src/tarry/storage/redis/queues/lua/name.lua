-- The name in the queue's own record, which decides; empty if it is deleted. `reservation`: a name that the queue does not have is
-- reserved for it, maybe by a process that has ended. From now on `rename.lua` refuses this reservation, so the name can be freed.
local a = cmsgpack.unpack(ARGV[1])
local name, refused = unpack(redis.call('HMGET', KEYS[1], 'name', 'refused'))
if name and a.reservation and name ~= a.queue then
  redis.call('HSET', KEYS[1], 'refused', math.max(tonumber(refused or 0), a.reservation))
end
return name or ''

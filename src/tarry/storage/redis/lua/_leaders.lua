-- Leaderships: the last leader of each name, its fencing token, and the end of its lease.
-- include: lua/_registry
local function last(name)
  local packed = redis.call('HGET', r .. ':leaders', name)
  return packed and cmsgpack.unpack(packed)
end
local function leads(name, fence)
  local leader = last(name)
  return leader and leader.lease_until > now and leader.fence == fence
end
local function keep(name, leader)
  redis.call('HSET', r .. ':leaders', name, cmsgpack.pack(leader))
  return {name, leader.holder, leader.fence, num(leader.lease_until)}
end

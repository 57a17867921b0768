-- The last leader of each name, and whether its lease is valid.
-- include: lua/_leaders
local leaders = {}
for _, name in ipairs(redis.call('HKEYS', r .. ':leaders')) do
  local leader = last(name)
  leaders[#leaders + 1] = {name, leader.holder, leader.fence, num(leader.lease_until), leader.lease_until > now and 1 or 0}
end
return leaders

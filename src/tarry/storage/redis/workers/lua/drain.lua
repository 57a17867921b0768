-- Let the workers of a consumer drain. The first request is kept.
-- include: lua/_registry
local all, n = redis.call('HGETALL', r .. ':workers'), 0
for i = 1, #all, 2 do
  local worker = cmsgpack.unpack(all[i + 1])
  if worker[3] == a.consumer and tonumber(worker[2]) >= now - a.kept_for then
    redis.call('HSETNX', r .. ':drains', all[i], num(now))
    n = n + 1
  end
end
return remember(n)

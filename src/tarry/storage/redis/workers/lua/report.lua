-- Store the report of a worker, remove workers that no longer report, and reply whether the worker must drain.
-- Repeated, it stores the same.
-- include: lua/_registry
local workers, drains = r .. ':workers', r .. ':drains'
local before = redis.call('HGET', workers, a.id)
local started = before and cmsgpack.unpack(before)[1] or num(now)
redis.call('HSET', workers, a.id, cmsgpack.pack({started, num(now), a.consumer, a.report}))
local all = redis.call('HGETALL', workers)
for i = 1, #all, 2 do
  if tonumber(cmsgpack.unpack(all[i + 1])[2]) < now - a.kept_for then
    redis.call('HDEL', workers, all[i])
    redis.call('HDEL', drains, all[i])
  end
end
if a.release then
  local releases, name = r .. ':releases', cmsgpack.pack({a.consumer, a.release})
  local known = redis.call('HGET', releases, name)
  local first = known and cmsgpack.unpack(known)[3] or num(now)
  redis.call('HSET', releases, name, cmsgpack.pack({a.consumer, a.release, first, num(now)}))
  if not known then
    local rows = redis.call('HGETALL', releases)
    for i = 1, #rows, 2 do
      if tonumber(cmsgpack.unpack(rows[i + 1])[4]) < now - a.releases_kept_for then redis.call('HDEL', releases, rows[i]) end
    end
  end
end
return redis.call('HEXISTS', drains, a.id)

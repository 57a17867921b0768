-- A step of a schedule change in one queue, executed once: the queue keeps the result by change number. Changes below the floor are
-- complete: their results are removed, and a late process with such a number changes nothing.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function once(stage, act)
  local results, number = q .. ':changes', tonumber(a.change)
  local floor = tonumber(redis.call('HGET', q, 'change_floor') or 0)
  if number < floor then return '' end
  local id = a.change .. ':' .. stage
  local before = redis.call('HGET', results, id)
  if before then
    redis.call('HSET', results, id, before)  -- a write, so that WAIT waits for the replicas, too
    return before
  end
  if tonumber(a.floor) > floor then
    redis.call('HSET', q, 'change_floor', a.floor)
    for _, other in ipairs(redis.call('HKEYS', results)) do
      if tonumber(string.match(other, '^%d+')) < tonumber(a.floor) then redis.call('HDEL', results, other) end
    end
  end
  local result = cmsgpack.pack(act(cmsgpack.unpack(ARGV[2])))
  redis.call('HSET', results, id, result)
  return done(result)
end

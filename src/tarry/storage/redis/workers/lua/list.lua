-- The last report of every worker, with the clock, when it started, when it reported and when its drain was requested.
-- include: lua/_registry
local all, rows = redis.call('HGETALL', r .. ':workers'), {}
for i = 1, #all, 2 do
  local worker = cmsgpack.unpack(all[i + 1])
  rows[#rows + 1] = {worker[1], worker[2], worker[4], redis.call('HGET', r .. ':drains', all[i]) or ''}
end
return {num(now), rows}

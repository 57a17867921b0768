-- Schedules that need a scheduler now, the longest waiting first: their time has come, or they were last changed at a time in the
-- future, because the clock was set back. Those whose payloads are made by code only if they are `owned`.
-- A change that is older than a second comes first: its process may have ended.
-- include: lua/_states
local oldest = redis.call('ZRANGE', r .. ':pending', 0, 0)[1]
if oldest then
  local record = cmsgpack.unpack(redis.call('HGET', r .. ':changes', oldest))
  if time[1] - record.begun_at > 1 then return {oldest, num(now), {}} end
end
local found, names = {}, {}
local function add(name, state)
  if found[name] or not state or not state.wake_at then return end
  if tonumber(state.wake_at) > now and tonumber(state.decided_at) <= now then return end
  found[name] = {tonumber(state.wake_at), name}
  names[#names + 1] = name
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', r .. ':schedule_wakes', '-inf', num(now), 'LIMIT', 0, a.limit)) do
  add(name, state_of(name))
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', r .. ':schedule_decided', '(' .. num(now), '+inf', 'LIMIT', 0, a.limit)) do
  add(name, state_of(name))
end
for _, name in ipairs(a.owned) do add(name, state_of(name)) end
table.sort(names, function(x, y)
  return found[x][1] < found[y][1] or (found[x][1] == found[y][1] and x < y)
end)
for i = #names, a.limit + 1, -1 do names[i] = nil end
return states(names)

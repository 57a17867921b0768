-- The time, and when a schedule needs a scheduler ('': none does).
-- include: lua/_registry
-- include: lua/_schedules
local wake = tonumber(redis.call('ZRANGE', r .. ':schedule_wakes', 0, 0, 'WITHSCORES')[2])
for _, name in ipairs(a.owned) do
  local state = state_of(name)
  if state and state.wake_at then wake = math.min(wake or tonumber(state.wake_at), tonumber(state.wake_at)) end
end
return {num(now), wake and num(wake) or ''}

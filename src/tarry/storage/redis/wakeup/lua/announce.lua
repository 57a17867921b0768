-- Register a process that is about to sleep, and reply with the time until a message may be deliverable ('' if there is none).
-- Reading and registering are one script, so a message is either in the reply or notified. `done` in `_rows.lua` notifies.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local field = a.channel .. ' ' .. (a.type or '')
local sleeps_for = a.sleep_for
local due
if not queue.paused_at then
  local view = a.type and q .. ':type:' .. a.type or q
  return_expired(view)
  local sets = {view .. ':leased'}
  for priority = 0, 9 do sets[#sets + 1] = view .. ':due:' .. priority end
  for _, set in ipairs(sets) do
    local head = tonumber(redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
    if head then due = math.min(due or head, head) end
  end
end
if due and due - now < sleeps_for then sleeps_for = math.max(due - now, 0) end
if a.notified_for and sleeps_for > 0 then
  local waiter = {channel = a.channel, queue = a.queue, type = a.type, wakes_at = now + sleeps_for}
  waiter.until_at = real + a.notified_for
  redis.call('HSET', q .. ':waiters', field, cmsgpack.pack(waiter))
  redis.call('EXPIRE', q .. ':waiters', math.ceil(a.notified_for / 1000000) + 60)
end
return due and num(math.max(due - now, 0)) or ''

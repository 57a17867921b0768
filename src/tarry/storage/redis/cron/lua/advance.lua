-- Read a change, or store the results of its step and go on to the next one. The stage is compared, so of several processes that
-- have made the same step one goes on, and the others get the next step from it. Replies with the work of the change; none: it is
-- complete.
-- include: lua/_registry
-- include: lua/_schedules
-- include: lua/_changes
local packed = redis.call('HGET', r .. ':changes', a.change)
if not packed then return {} end
local record = cmsgpack.unpack(packed)
if record.stage ~= a.stage then
  save(record)  -- a write, so that WAIT waits for the replicas before a queue changes
  return work_of(record)
end
for i, part in ipairs(record.parts) do
  -- Without a result the queue was deleted, and its messages with it.
  local results = ARGV[i + 1] ~= '' and cmsgpack.unpack(ARGV[i + 1]) or {}
  for n, item in ipairs(part.items) do
    local result = results[n] or 0
    if result > 0 and a.stage == 'withdraw' then withdrawn(item) end
    if result > 0 and a.stage == 'offer' then linked(item, part.queue, result) end
  end
end
if a.stage == 'withdraw' then enter(record) else record.parts = {} end
save(record)
return remember(work_of(record))

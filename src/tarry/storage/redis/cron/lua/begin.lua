#!lua
-- Begin a change of schedules: compare the revisions, store the new states, and the change itself for the steps that follow.
-- One script, so schedules change together or not at all, and of concurrent writers one wins. A process that ends afterwards
-- leaves a change that the next reader completes.
-- Replies: a change to complete first; a queue to make first; which changes were applied; the work of the first step.
-- include: lua/_registry
-- include: lua/_schedules
-- include: lua/_changes
local function queue_id(name)
  local id = redis.call('HGET', r .. ':names', name)
  if id and string.sub(id, 1, 1) ~= '~' then return id end
  return a.ids[name]
end

for _, change in ipairs(a.changes) do
  local number = redis.call('HGET', r .. ':changing', change.name)
  if number then return {number, '', {}, {}} end
  for _, tick in ipairs(change.ticks) do
    if tick.queue and not queue_id(tick.queue) then return {'', tick.queue, {}, {}} end
  end
end

local applied, all = {}, true
for i, change in ipairs(a.changes) do
  local state = state_of(change.name)
  local is_current = (state and num(state.revision)) == change.expected
  applied[i] = is_current and 1 or 0
  all = all and is_current
end
if a.together and not all then
  for i in ipairs(applied) do applied[i] = 0 end
  return remember({'', '', applied, {}})
end

-- The ledger that this queue owned before, or a new one; and the ledger that a schedule has follows it to another queue.
local function adopt(name, queue, ledger)
  local owners = owners_of(name)
  for i = #owners, 1, -1 do
    if ledger == owners[i][1] or (not ledger and owners[i][2] == queue) then
      ledger = owners[i][1]
      table.remove(owners, i)
      break
    end
  end
  ledger = ledger or num(next_number())
  owners[#owners + 1] = {ledger, queue}
  redis.call('HSET', r .. ':ledger_owners', name, cmsgpack.pack(owners))
  return ledger
end

local function store_change(change)
  local before, after = state_of(change.name), change.state
  local ledger = before and before.ledger
  if after and not (ledger and change.moves_only) then ledger = adopt(change.name, after.queue, ledger) end
  if after then
    after.ledger = ledger
    store_state(change.name, after)
    redis.call('HSET', r .. ':schedule_bodies', change.name, ARGV[change.body])
  else
    redis.call('HDEL', r .. ':schedules', change.name)
    redis.call('HDEL', r .. ':schedule_bodies', change.name)
    for _, set in ipairs({':schedule_names', ':schedule_wakes', ':schedule_decided'}) do redis.call('ZREM', r .. set, change.name) end
  end
  return ledger
end

local record = {number = num(next_number()), stage = 'withdraw', begun_at = time[1], parts = {}, names = {}, changes = {}}
for i, change in ipairs(a.changes) do
  if applied[i] == 1 then
    local ledger = store_change(change)
    for _, each in ipairs(change.withdraw) do
      local member = each.tick .. ':' .. each.hash
      local entry = entry_of(ledger, member)
      if entry and entry.key and entry.verdict ~= 'withdrawn' then
        add_item(record.parts, entry.queue, {
          ledger = ledger, member = member, key = entry.key, version = entry.version, reason = each.reason,
          decided_at = change.decided_at, detail = each.detail,
        })
      end
    end
    for _, tick in ipairs(change.ticks) do
      tick.payload = tick.payload and ARGV[tick.payload]
      tick.queue = tick.queue and queue_id(tick.queue)
    end
    record.names[#record.names + 1] = change.name
    record.changes[#record.changes + 1] = {ledger = ledger, decided_at = change.decided_at, ticks = change.ticks}
  end
end
if #record.parts == 0 then enter(record) end
save(record)
return remember({'', '', applied, work_of(record)})

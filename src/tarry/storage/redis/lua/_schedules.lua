-- Schedules and their tick ledgers. They are in the registry's slot, because a ledger follows its schedule from queue to queue;
-- messages are in the slots of their queues. A change of both is made in steps (see `_changes.lua`).
-- A schedule has a record (fields that scripts compare) and a body (the rest). A ledger has entries by `tick:hash` in tick order,
-- separate entries for runs of skipped ticks, and the set `open` of ticks whose messages may be live.
local function state_of(name)
  local packed = redis.call('HGET', r .. ':schedules', name)
  return packed and cmsgpack.unpack(packed) or nil
end

local function ledger_key(ledger) return r .. ':ledger:' .. ledger end

local function entry_of(ledger, member)
  local packed = redis.call('HGET', ledger_key(ledger) .. ':entries', member)
  return packed and cmsgpack.unpack(packed) or nil
end

local function store_entry(ledger, member, entry)
  redis.call('HSET', ledger_key(ledger) .. ':entries', member, cmsgpack.pack(entry))
  local over = math.max(tonumber(entry.decided_at), tonumber(entry.til or entry.tick))
  redis.call('ZADD', r .. ':ticks_over', num(over), ledger .. ' ' .. member)
end

-- The ledgers of a name with the queues that own them; the one that was installed last is the last.
local function owners_of(name)
  local packed = redis.call('HGET', r .. ':ledger_owners', name)
  return packed and cmsgpack.unpack(packed) or {}
end

local function ledger_of(name)
  local state, owners = state_of(name), owners_of(name)
  if state then return state.ledger end
  return #owners > 0 and owners[#owners][1] or nil
end

local function forgotten_until(ledger)
  local last
  for _, til in ipairs(redis.call('HVALS', ledger_key(ledger) .. ':forgotten')) do
    last = math.max(last or tonumber(til), tonumber(til))
  end
  return last
end

-- Change and revision numbers grow with the server's clock, so none is used twice, even if a failover lost the last ones.
local function next_number()
  local last = tonumber(redis.call('GET', r .. ':last_change') or 0)
  local number = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('SET', r .. ':last_change', num(number))
  return number
end

local function store_state(name, state)
  state.revision = next_number()
  redis.call('HSET', r .. ':schedules', name, cmsgpack.pack(state))
  redis.call('ZADD', r .. ':schedule_names', 0, name)
  if state.wake_at and not state.by_code then
    redis.call('ZADD', r .. ':schedule_wakes', state.wake_at, name)
    redis.call('ZADD', r .. ':schedule_decided', state.decided_at, name)
  else
    redis.call('ZREM', r .. ':schedule_wakes', name)
    redis.call('ZREM', r .. ':schedule_decided', name)
  end
end

-- A schedule and its ledgers follow their queue when it is renamed. A new revision: a change that was computed before is void.
local function rename_queue(queue, new_name)
  for _, name in ipairs(redis.call('HKEYS', r .. ':schedules')) do
    local state = state_of(name)
    if state.queue == queue then
      state.queue = new_name
      store_state(name, state)
    end
  end
  for _, name in ipairs(redis.call('HKEYS', r .. ':ledger_owners')) do
    local owners, is_owner = owners_of(name), false
    for _, owner in ipairs(owners) do
      if owner[2] == queue then owner[2], is_owner = new_name, true end
    end
    if is_owner then redis.call('HSET', r .. ':ledger_owners', name, cmsgpack.pack(owners)) end
  end
end

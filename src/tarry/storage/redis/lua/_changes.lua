-- A schedule change in steps that any process can continue: the record of the change, from which a step is repeated.
-- `begin.lua` compares the revisions and stores the change under a number, in one script: from then on the change is decided. Queues
-- withdraw old messages, ledgers enter the new ticks, queues create their messages, and ledgers link them. A queue keeps the
-- result of each step by change number (`_once.lua`), so a repeated step has no second effect and returns the same
-- result. A schedule has at most one incomplete change, which a reader completes first.
local fired = {planned = true, backfilled = true}

-- The rule of `cron/enter_ticks.sql` and `remove_forgotten.sql`.
local function accepts(ledger, member, change, tick)
  local key = ledger_key(ledger)
  if tick.by_instant then
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', key .. ':ticks', tick.tick, tick.tick)) do
      if other ~= member and fired[entry_of(ledger, other).verdict] then return false end
    end
  end
  local entry = entry_of(ledger, member)
  if not entry then
    if not tick.draft or tonumber(tick.tick) > tonumber(change.decided_at) then return true end
    local til = tick.by_instant and forgotten_until(ledger) or redis.call('HGET', key .. ':forgotten', tick.hash)
    return not til or tonumber(tick.tick) > tonumber(til)
  end
  if entry.verdict ~= 'skipped' then return entry.verdict == 'withdrawn' end
  return tick.verdict == 'backfilled'
    or (entry.reason ~= 'by_hand' and tonumber(entry.decided_at) > tonumber(change.decided_at))
end

local function add_item(parts, queue, item)
  for _, part in ipairs(parts) do
    if part.queue == queue then
      part.items[#part.items + 1] = item
      return
    end
  end
  parts[#parts + 1] = {queue = queue, items = {item}}
end

-- Enter the ticks of a change into its ledger; those that the ledger accepts become messages.
local function enter(record)
  record.stage, record.parts = 'offer', {}
  for _, change in ipairs(record.changes) do
    for _, tick in ipairs(change.ticks) do
      local key, member = ledger_key(change.ledger), tick.tick .. ':' .. tick.hash
      local entry = {
        tick = tick.tick, hash = tick.hash, verdict = tick.verdict, reason = tick.reason, decided_at = change.decided_at,
        due_at = tick.due_at, til = tick.til, count = tick.count,
      }
      if tick.til then
        member = member .. '~' .. record.number
        redis.call('ZADD', key .. ':runs', tick.tick, member)
        store_entry(change.ledger, member, entry)
      elseif accepts(change.ledger, member, change, tick) then
        redis.call('ZADD', key .. ':ticks', tick.tick, member)
        redis.call('ZREM', key .. ':open', member)
        store_entry(change.ledger, member, entry)
        if tick.draft then
          local item = {
            ledger = change.ledger, member = member, draft = tick.draft, payload = tick.payload, detail = tick.detail,
          }
          add_item(record.parts, tick.queue, item)
        end
      end
    end
  end
  record.changes = nil
end

-- Results of the queues: withdrawn messages, or versions of created messages (0: another message has the key).
local function withdrawn(item)
  local entry = entry_of(item.ledger, item.member)
  if not entry then return end  -- forgotten after its message was removed
  entry.verdict, entry.reason, entry.decided_at = 'withdrawn', item.reason, item.decided_at
  redis.call('ZREM', ledger_key(item.ledger) .. ':open', item.member)
  store_entry(item.ledger, item.member, entry)
end

local function linked(item, queue, version)
  local entry = entry_of(item.ledger, item.member)
  if not entry then return end
  entry.queue, entry.key, entry.version = queue, item.draft.key, version
  redis.call('ZADD', ledger_key(item.ledger) .. ':open', entry.tick, item.member)
  store_entry(item.ledger, item.member, entry)
end

-- Store the progress of a change. A complete change is deleted, and its schedules are free.
local function save(record)
  if #record.parts > 0 then
    redis.call('HSET', r .. ':changes', record.number, cmsgpack.pack(record))
    redis.call('ZADD', r .. ':pending', record.number, record.number)
    for _, name in ipairs(record.names) do redis.call('HSET', r .. ':changing', name, record.number) end
  else
    redis.call('HDEL', r .. ':changes', record.number)
    redis.call('ZREM', r .. ':pending', record.number)
    for _, name in ipairs(record.names) do redis.call('HDEL', r .. ':changing', name) end
  end
end

-- The next step of a change: its number, the lowest incomplete number, the stage, then queues and packed items.
local function work_of(record)
  if #record.parts == 0 then return {} end
  local work = {record.number, redis.call('ZRANGE', r .. ':pending', 0, 0)[1], record.stage}
  for _, part in ipairs(record.parts) do
    work[#work + 1] = part.queue
    work[#work + 1] = cmsgpack.pack(part.items)
  end
  return work
end

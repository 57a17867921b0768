-- Live messages: a packed row and a payload by key, and the order of delivery in sorted sets.
-- A waiting message is in `due:<priority>` by its due time, a leased one in `leased` by the end of its lease; one with a type
-- is in the sets of its type as well, so a poll never skips messages of other types. A member begins with the version, which
-- has 16 digits, so messages that are due at the same time are ordered by version.
local earliest = {}
local changed = {}  -- rows that this script has read or written, by key; false: there is none

local function prefetch(keys)
  if #keys == 1 then return end  -- `row_of` reads it
  for first = 1, #keys, 1000 do
    local rows = redis.call('HMGET', q .. ':rows', unpack(keys, first, math.min(first + 999, #keys)))
    for i = 1, #rows do changed[keys[first + i - 1]] = rows[i] end
  end
end

local function row_of(key)
  local packed = changed[key]
  if packed == nil then packed = redis.call('HGET', q .. ':rows', key) end
  return packed and unpacked(key, packed) or nil
end

local function store(row)
  local packed = pack(row)
  later('HSET', q .. ':rows', row.key, packed)
  changed[row.key] = packed
  return packed
end

local function key_of(member) return string.sub(member, 18) end

local due_sets = {}
local function due_set(view, priority)
  if view ~= q then return view .. ':due:' .. priority end
  local name = due_sets[priority]
  if not name then
    name = q .. ':due:' .. priority
    due_sets[priority] = name
  end
  return name
end

-- Put a message into the sets of all messages and of its type. `place`: 'due', 'leased', or nil to remove it.
local ends_at, ends = nil, nil
local function place_in(view, row, member, place)
  if place == 'due' then
    later('ZADD', due_set(view, row.priority), row.due_at, member)
  else
    later('ZREM', due_set(view, row.priority), member)
  end
  if place == 'leased' then
    later('ZADD', view .. ':leased', ends, member)
  elseif row.token then
    later('ZREM', view .. ':leased', member)
  end
end
local function put(row, place)
  local member, kind = row.version .. ':' .. row.key, options_of(row).type
  place_in(q, row, member, place)
  if kind then place_in(q .. ':type:' .. kind, row, member, place) end
end
local function unplace(row) put(row, nil) end

-- The queue's record has the priorities that were ever used, so a poll reads no sets that were always empty.
local used_priority = nil
local function use_priority(priority)
  if priority == used_priority then return end
  used_priority = priority
  local used = queue.priorities or ''
  if string.find(used, priority, 1, true) then return end
  queue.priorities = used .. priority
  redis.call('HSET', q, 'priorities', queue.priorities)
end

-- Deliverable from its due time on.
local waits_for, waits_until = nil, nil
local function wait(row)
  use_priority(row.priority)
  put(row, 'due')
  local kind = options_of(row).type or ''
  if kind == waits_for and row.due_at == waits_until then return end
  waits_for, waits_until = kind, row.due_at
  local due = tonumber(row.due_at)
  earliest[kind] = math.min(earliest[kind] or due, due)
end

-- Not deliverable until its lease ends.
local function hold(row)
  local at = math.max(row.lease_until, tonumber(row.due_at))
  if at ~= ends_at then ends_at, ends = at, num(at) end
  put(row, 'leased')
end

local function remove(row)
  unplace(row)
  later('HDEL', q .. ':rows', row.key)
  later('HDEL', q .. ':payloads', row.key)
  changed[row.key] = false
end

local function end_lease(row)
  row.token, row.leased_at, row.lease_until, row.consumer = nil, 0, 0, ''
end

local function is_free(row) return row.lease_until <= now end

-- Move messages whose leases have expired back to the waiting ones, at most a thousand in one script; the next poll moves more.
local function return_expired(view)
  local members = redis.call('ZRANGEBYSCORE', view .. ':leased', '-inf', num(now), 'LIMIT', 0, 1000)
  if #members == 0 then return end
  local keys = {}
  for i, member in ipairs(members) do keys[i] = key_of(member) end
  prefetch(keys)
  for _, key in ipairs(keys) do wait(row_of(key)) end
  write()
end

local function attempts_allowed(row, request)
  return options_of(row).max_attempts or request or queue.max_attempts and tonumber(queue.max_attempts) or nil
end

local function is_exhausted(row, request)
  local allowed = attempts_allowed(row, request)
  return allowed ~= nil and row.attempt >= allowed
end

-- The dead letter keeps the row and the payload under its version, which is unique in the queue.
local function bury(row, reason, problem)
  note('buried', row, {leased = true, error = problem, detail = {reason = reason}})
  local payload = redis.call('HGET', q .. ':payloads', row.key)
  remove(row)
  local consumer, more = row.consumer, row.more or {}
  end_lease(row)
  row.consumer, row.more = consumer, more
  more.key, more.died_at, more.reason, more.error = row.key, now, reason, problem or more.last_error
  redis.call('HSET', q .. ':letters', row.version, pack(row))
  redis.call('HSET', q .. ':dead_payloads', row.version, payload)
  redis.call('ZADD', q .. ':dead', num(now), row.version)
end

-- The end of a script. Wake processes that would sleep past a message of this script, each once: it announces its next sleep.
local function done(reply)
  local waiters = next(earliest) and not queue.paused_at and redis.call('HGETALL', q .. ':waiters') or {}
  for i = 1, #waiters, 2 do
    local waiter = cmsgpack.unpack(waiters[i + 1])
    local due = earliest[waiter.type or '']
    if not waiter.type then
      for _, other in pairs(earliest) do due = math.min(due or other, other) end
    end
    if waiter.until_at <= real then
      redis.call('HDEL', q .. ':waiters', waiters[i])
    elseif due and due < waiter.wakes_at then
      redis.call('HDEL', q .. ':waiters', waiters[i])
      redis.call('PUBLISH', waiter.channel, cmsgpack.pack({waiter.queue, waiter.type or false, math.max(due - now, 0)}))
    end
  end
  return remember(reply)
end

-- Live messages: a packed row and a payload by key, and the order of delivery in sorted sets.
-- A waiting message is in `due:<priority>` by its due time, a leased one in `leased` by the end of its lease; one with a type
-- is in the sets of its type as well, so no poll walks past messages of other types. A member begins with the version, which
-- has 16 digits: messages that are due together are ordered by version.
local earliest = {}

local function row_of(key)
  local packed = redis.call('HGET', q .. ':rows', key)
  if not packed then return nil end
  local row = cmsgpack.unpack(packed)
  row.key = key
  return row
end

local function store(row)
  local key = row.key
  row.key = nil
  redis.call('HSET', q .. ':rows', key, cmsgpack.pack(row))
  row.key = key
end

local function member_of(row) return num(row.version) .. ':' .. row.key end
local function key_of(member) return string.sub(member, 18) end

local function views_of(row)
  if row.type then return {q, q .. ':type:' .. row.type} end
  return {q}
end

local function unplace(row)
  local member = member_of(row)
  for _, view in ipairs(views_of(row)) do
    redis.call('ZREM', view .. ':due:' .. row.priority, member)
    if row.token then redis.call('ZREM', view .. ':leased', member) end
  end
end

-- The queue's record has the priorities that were ever used, so a poll reads no sets that were always empty.
local function use_priority(priority)
  local used = queue.priorities or ''
  if string.find(used, priority, 1, true) then return end
  queue.priorities = used .. priority
  redis.call('HSET', q, 'priorities', queue.priorities)
end

-- Deliverable from its due time on.
local function wait(row)
  use_priority(row.priority)
  local member = member_of(row)
  for _, view in ipairs(views_of(row)) do
    if row.token then redis.call('ZREM', view .. ':leased', member) end
    redis.call('ZADD', view .. ':due:' .. row.priority, row.due_at, member)
  end
  local kind, due = row.type or '', tonumber(row.due_at)
  earliest[kind] = math.min(earliest[kind] or due, due)
end

-- Not deliverable until its lease ends.
local function hold(row)
  local member, ends = member_of(row), math.max(row.lease_until, tonumber(row.due_at))
  for _, view in ipairs(views_of(row)) do
    redis.call('ZREM', view .. ':due:' .. row.priority, member)
    redis.call('ZADD', view .. ':leased', num(ends), member)
  end
end

local function remove(row)
  unplace(row)
  redis.call('HDEL', q .. ':rows', row.key)
  redis.call('HDEL', q .. ':payloads', row.key)
end

local function end_lease(row)
  row.token, row.leased_at, row.lease_until, row.consumer = nil, nil, nil, nil
end

local function is_free(row) return not row.lease_until or row.lease_until <= now end

-- Move messages whose leases have ended back to those that wait. At most a thousand in one script: if more end at once, the
-- next poll goes on.
local function return_expired(view)
  local members = redis.call('ZRANGEBYSCORE', view .. ':leased', '-inf', num(now), 'LIMIT', 0, 1000)
  for _, member in ipairs(members) do wait(row_of(key_of(member))) end
end

local function attempts_allowed(row, request)
  return row.max_attempts or request or tonumber(queue.max_attempts or nil)
end

local function is_exhausted(row, request)
  local allowed = attempts_allowed(row, request)
  return allowed ~= nil and row.attempt >= allowed
end

-- The dead letter keeps the row and the payload under its version, which is unique in the queue.
local function bury(row, reason, problem)
  note('buried', row, {leased = true, error = problem, detail = {reason = reason}})
  local version, payload = num(row.version), redis.call('HGET', q .. ':payloads', row.key)
  remove(row)
  local consumer = row.consumer
  end_lease(row)
  row.consumer, row.died_at, row.reason, row.error = consumer, now, reason, problem or row.last_error
  redis.call('HSET', q .. ':letters', version, cmsgpack.pack(row))
  redis.call('HSET', q .. ':dead_payloads', version, payload)
  redis.call('ZADD', q .. ':dead', num(now), version)
end

-- Wake processes that sleep until later than what became due earlier, each once: it announces its next sleep.
local function notify()
  if not next(earliest) then return end
  local waiters = redis.call('HGETALL', q .. ':waiters')
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
end

local function done(reply)
  if not queue.paused_at then notify() end
  return remember(reply)
end

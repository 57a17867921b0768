-- Lease up to `n` messages by priority, due time and version, and bury those without attempts left.
-- Exact because the sets have that order and no other script runs in between. Its work is bounded: it leases at most `n` messages, and
-- buries or moves back a thousand each at most; waiting and leased messages behind them cost nothing.
-- A token is a hash of the request's random number and the version, so a repeated request finds the leases of its first try.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local keys, rows = {}, {}
local leased = {leased = true}

local function token_of(row) return string.sub(redis.sha1hex(a.nonce .. row.version), 1, 32) end

local function taken()
  if #keys == 0 then return {keys, rows, {}} end
  return {keys, rows, redis.call('HMGET', q .. ':payloads', unpack(keys))}
end

local function keys_of(members)
  local found = {}
  for i, member in ipairs(members) do found[i] = key_of(member) end
  prefetch(found)
  return found
end

if kept then
  for _, key in ipairs(keys_of(kept[2])) do
    local row = row_of(key)
    if row and row.token == token_of(row) then keys[#keys + 1], rows[#rows + 1] = key, row.packed end
  end
  return taken()
end

if queue.paused_at then return taken() end
local view = a.type and q .. ':type:' .. a.type or q
return_expired(view)
local polled = {}
local queue_lease_for = tonumber(queue.lease_for)

local function lease(row, member)
  local more = row.more
  if more or a.max_attempts then
    more = more or {}
    more.attempts_of_poll, row.more = a.max_attempts, more
  end
  if row.token and not (more and more.expired_at) then note('expired', row, leased) end
  if is_exhausted(row, a.max_attempts) then
    bury(row, 'exhausted')  -- not another attempt: the expired lease was counted when it began
    return
  end
  row.attempt = row.attempt + 1
  row.token, row.leased_at, row.consumer = token_of(row), now, a.consumer or ''
  if more then more.expired_at = nil end
  row.lease_until = now + (a.lease_for or options_of(row).lease_for or queue_lease_for)
  hold(row)
  local packed = store(row)
  note('leased', row, leased, packed)
  local n = #polled + 1
  polled[n], keys[n], rows[n] = member, row.key, packed
end

local first, last, step = 9, 0, -1
if a.lowest_first then first, last, step = 0, 9, 1 end
local left, used = 1000, queue.priorities or ''
for priority = first, last, step do
  while left > 0 and string.find(used, priority, 1, true) do
    local missing = a.n - #keys
    if missing < 1 then break end
    local members = redis.call('ZRANGEBYSCORE', due_set(view, priority), '-inf', num(now), 'LIMIT', 0, missing)
    for i, key in ipairs(keys_of(members)) do
      local row = row_of(key)
      if is_free(row) then
        lease(row, members[i])
      else
        hold(row)  -- its lease had ended, and the clock was set back since
      end
    end
    if #members < missing then break end
    left = left - #members
    write()
  end
end
if #polled > 0 or a.again then remember(polled) else write() end
return taken()

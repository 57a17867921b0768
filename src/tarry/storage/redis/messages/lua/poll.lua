-- Lease up to `n` messages by priority, due time and version, and bury those without attempts left.
-- Exact because the sets are in that order and no other script runs in between. Its work is that of what it returns: at most
-- `n`, plus a thousand that are buried or whose leases have ended; waiting and leased messages behind them cost nothing.
-- A token is a hash of the request's random number and the message: a repeated request finds the leases of the first.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local taken = {}

local function token_of(member) return string.sub(redis.sha1hex(a.nonce .. member), 1, 32) end

local function add(row)
  taken[#taken + 1] = row.key
  taken[#taken + 1] = redis.call('HGET', q .. ':rows', row.key)
  taken[#taken + 1] = redis.call('HGET', q .. ':payloads', row.key)
end

if kept then
  for _, member in ipairs(kept[2]) do
    local row = row_of(key_of(member))
    if row and row.token == token_of(member) then add(row) end
  end
  return taken
end

if queue.paused_at then return taken end
local view = a.type and q .. ':type:' .. a.type or q
return_expired(view)
local polled = {}

local function lease(row, member)
  row.attempts_of_poll = a.max_attempts
  if row.token and not row.expired_at then note('expired', row, {leased = true}) end
  if is_exhausted(row, a.max_attempts) then
    bury(row, 'exhausted')  -- not another attempt: the expired lease was counted when it began
    return
  end
  row.attempt = row.attempt + 1
  row.token, row.leased_at, row.consumer, row.expired_at = token_of(member), now, a.consumer, nil
  row.lease_until = now + (a.lease_for or row.lease_for or tonumber(queue.lease_for))
  hold(row)
  store(row)
  note('leased', row, {leased = true})
  polled[#polled + 1] = member
  add(row)
end

local first, last, step = 9, 0, -1
if a.lowest_first then first, last, step = 0, 9, 1 end
local left, used = 1000, queue.priorities or ''
for priority = first, last, step do
  local set = view .. ':due:' .. priority
  while left > 0 and string.find(used, priority, 1, true) do
    local missing = a.n - #taken / 3
    if missing < 1 then break end
    local members = redis.call('ZRANGEBYSCORE', set, '-inf', num(now), 'LIMIT', 0, missing)
    for _, member in ipairs(members) do
      local row = row_of(key_of(member))
      if is_free(row) then
        lease(row, member)
      else
        hold(row)  -- its lease had ended, and the clock was set back since
      end
    end
    if #members < missing then break end
    left = left - #members
  end
end
if #polled > 0 then remember(polled) else store_counters() end
return taken

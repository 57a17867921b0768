-- One offer: a conflict is decided against the live row in the same script, so two producers of one key are ordered, and the last
-- version wins. Returns a letter (created, updated, ignored) and the row. `fresh`: all keys were just generated, and none is live.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function plan(draft, live)
  local due = draft.due_at or num(now + draft.after)
  if not draft.max_wait then return due, nil end
  local own = now + draft.max_wait
  local limit = live and live.more and live.more.due_limit or own
  return num(math.min(tonumber(due), own, limit)), limit
end

local function replaces(draft, live, planned, payload)
  if draft.conflict == 'keep' then return false end
  if draft.conflict == 'earliest' then return tonumber(planned) < tonumber(live.planned_at) end
  return planned ~= live.planned_at or draft.priority ~= live.priority or draft.options ~= live.options
    or #payload ~= live.size or redis.call('HGET', q .. ':payloads', live.key) ~= payload
end

local function live_of(key) return not a.fresh and row_of(key) or nil end

local function offer(draft, key, hash, payload)
  local live = live_of(key)
  draft.options = draft.options or pack_options(draft)
  local planned, limit = plan(draft, live)
  if live and not replaces(draft, live, planned, payload) then return 'i', live end
  local row = {
    key = key, version = num(next_of('version')), leased_at = 0, lease_until = 0, size = #payload, attempt = 0,
    priority = draft.priority, hash = hash, due_at = planned, consumer = '', planned_at = planned,
    created_at = live and live.created_at or now, options = draft.options,
  }
  if limit or draft.trace then row.more = {due_limit = limit, trace = draft.trace} end
  if live then unplace(live) end
  local packed = store(row)
  later('HSET', q .. ':payloads', key, payload)
  wait(row)
  note(live and 'updated' or 'offered', row, queue.journal == 'payloads' and {payload = payload}, packed)
  return live and 'u' or 'c', row
end

-- The messages of a request, all or none.
local function offer_all()
  if not a.fresh then prefetch(a.keys) end
  if queue.max_depth then
    local free, new = queue.max_depth - redis.call('HLEN', q .. ':rows'), 0
    for _, key in ipairs(a.keys) do
      if not live_of(key) then new = new + 1 end
    end
    if new > math.max(free, 0) then
      local full = 'full:' .. queue.max_depth
      return a.keep_for and full or remember(full)  -- a caller may repeat its own request later
    end
  end
  local outcomes = {}
  for i, key in ipairs(a.keys) do
    local draft = a.drafts[a.uses and a.uses[i] or 1]
    outcomes[i] = (offer(draft, key, string.sub(a.hashes, 16 * i - 15, 16 * i), ARGV[i + 1]))
  end
  return done(table.concat(outcomes))
end

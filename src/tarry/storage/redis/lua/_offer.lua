-- One offer: a conflict is decided against the live row in the same script, so two producers of one key are ordered, and the last
-- version wins. Returns a letter (created, updated, ignored) and the row.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local compared = {'content_type', 'priority', 'type', 'headers', 'lease_for', 'max_attempts', 'retry'}

local function equals(live, draft, payload)
  for _, name in ipairs(compared) do
    if live[name] ~= draft[name] then return false end
  end
  return redis.call('HGET', q .. ':payloads', live.key) == payload
end

local function plan(draft, live)
  local due = draft.due_at or num(now + draft.after)
  if not draft.max_wait then return due, nil end
  local own = now + draft.max_wait
  local limit = live and live.due_limit or own
  return num(math.min(tonumber(due), own, limit)), limit
end

local function replaces(draft, live, planned, payload)
  if draft.conflict == 'keep' then return false end
  if draft.conflict == 'earliest' then return tonumber(planned) < tonumber(live.planned_at) end
  return planned ~= live.planned_at or not equals(live, draft, payload)
end

local function offer(draft, payload)
  local live = row_of(draft.key)
  local planned, limit = plan(draft, live)
  if live and not replaces(draft, live, planned, payload) then return 'i', live end
  local row = {
    key = draft.key, version = next_of('version'), attempt = 0, hash = draft.hash, trace = draft.trace, planned_at = planned,
    due_at = planned, due_limit = limit, created_at = live and live.created_at or now,
  }
  for _, name in ipairs(compared) do row[name] = draft[name] end
  if live then unplace(live) end
  store(row)
  redis.call('HSET', q .. ':payloads', row.key, payload)
  wait(row)
  note(live and 'updated' or 'offered', row, {size = #payload})
  return live and 'u' or 'c', row
end

-- A page of live messages in due order, from a bounded scan. There is one set per priority, so the page is merged from a part of
-- each; messages after the first incomplete part (the horizon) are left to the next page.
-- Leased messages are ordered by the end of their leases, so up to ten thousand of them are read and sorted.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
-- include: lua/_ranks
local view = a.type and q .. ':type:' .. a.type or q
local part, leased_read = a.part, 10000
local found, horizon = {}, nil

for priority = a.priority or 0, a.priority or 9 do
  local set = view .. ':due:' .. priority
  local first = rank_after(set, a.after_due, a.after_version)
  local page = redis.call('ZRANGE', set, first, first + part - 1, 'WITHSCORES')
  for i = 1, #page, 2 do found[#found + 1] = {tonumber(page[i + 1]), page[i]} end
  if #page == 2 * part then
    local last = {tonumber(page[#page]), page[#page - 1]}
    if not horizon or last[1] < horizon[1] or (last[1] == horizon[1] and last[2] < horizon[2]) then horizon = last end
  end
end
for _, member in ipairs(redis.call('ZRANGE', view .. ':leased', 0, leased_read - 1)) do
  local row = row_of(key_of(member))
  local due = tonumber(row.due_at)
  local is_after = not a.after_due or due > a.after_due or (due == a.after_due and tonumber(row.version) > a.after_version)
  if is_after and (not a.priority or row.priority == a.priority) then found[#found + 1] = {due, member} end
end
table.sort(found, function(x, y) return x[1] < y[1] or (x[1] == y[1] and x[2] < y[2]) end)

local rows = {}
for _, each in ipairs(found) do
  if horizon and (each[1] > horizon[1] or (each[1] == horizon[1] and each[2] > horizon[2])) then break end
  local key = key_of(each[2])
  if not a.prefix or string.sub(key, 1, #a.prefix) == a.prefix then
    rows[#rows + 1] = key
    rows[#rows + 1] = redis.call('HGET', q .. ':rows', key)
    rows[#rows + 1] = a.payloads and redis.call('HGET', q .. ':payloads', key) or ''
  end
end
return {num(now), queue.max_attempts, horizon and horizon[2] or false, horizon and num(horizon[1]) or false, rows}

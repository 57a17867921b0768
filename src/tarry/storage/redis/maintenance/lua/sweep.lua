-- Record expired leases, and bury messages without attempts left, among the next `limit` due messages of each priority. Delivery
-- does not depend on it. A paused queue is not swept.
-- Replies with the numbers of recorded, buried and scanned messages, and the next position of each priority, by due time and version.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
-- include: lua/_ranks
local expired, buried, walked, cursor = 0, 0, 0, {}

local function sweep(row)
  if not is_free(row) then return end
  local more = row.more or {}
  local is_new = row.token and not more.expired_at
  if is_new then
    note('expired', row, {leased = true})
    more.expired_at, row.more = now, more
    expired = expired + 1
  end
  if is_exhausted(row, more.attempts_of_poll) then
    bury(row, 'exhausted')
    buried = buried + 1
  elseif is_new then
    store(row)
  end
end

if not queue.paused_at then
  return_expired(q)
  for _, from in ipairs(a.starts) do
    local set = q .. ':due:' .. from[1]
    local first = rank_after(set, from[2], from[3])
    local page = redis.call('ZRANGE', set, first, first + a.limit - 1, 'WITHSCORES')
    for i = 1, #page, 2 do
      if tonumber(page[i + 1]) > now then break end
      sweep(row_of(key_of(page[i])))
      walked = walked + 1
      if i == 2 * a.limit - 1 then
        cursor[#cursor + 1] = from[1]
        cursor[#cursor + 1] = page[i + 1]
        cursor[#cursor + 1] = version_of(page[i])
      end
    end
  end
end
return done({expired, buried, walked, cursor})

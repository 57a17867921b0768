-- Events of one queue between two ids: entries with the first `limit`, how many there are (up to about `most`), whether older
-- ones were trimmed, and the time of this node. An event that is appended after this script has an id of at least that time.
-- The id of an entry is that of its last event, and its number of events; it has at most a thousand.
local a = cmsgpack.unpack(ARGV[1])
local journal, first, last = KEYS[1] .. ':journal', tonumber(a.first), tonumber(a.last)
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
if redis.call('EXISTS', journal) == 0 then return {now, 0, 0, {}, 0} end
local entries, n = {}, 0
local from, til = a.first, string.format('%d', last + 999)
while n <= a.most do
  local page = redis.call('XRANGE', journal, from, til, 'COUNT', 100)
  for _, entry in ipairs(page) do
    local id, count = string.match(entry[1], '(%d+)-(%d+)')
    local fitting = math.min(id, last) - math.max(id - count + 1, first) + 1
    if fitting > 0 then
      if n < a.limit then entries[#entries + 1] = entry end
      n = n + fitting
    end
  end
  if #page < 100 then break end
  from = '(' .. page[#page][1]
end
local oldest, pruned = redis.call('XRANGE', journal, '-', '+', 'COUNT', 1)[1], 0
local oldest_id, count = string.match(oldest and oldest[1] or '', '(%d+)-(%d+)')
if oldest and oldest_id - count + 1 > first then
  local info = redis.call('XINFO', 'STREAM', journal)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' and info[i + 1] > redis.call('XLEN', journal) then pruned = 1 end
  end
end
return {now, n, pruned, entries, 1}

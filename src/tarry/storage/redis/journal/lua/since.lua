-- Events of one queue between two ids: the first `limit`, how many there are (up to `most` + 1), whether older ones were
-- trimmed, and the time of this node. An event that is appended after this script has an id of at least that time.
local a = cmsgpack.unpack(ARGV[1])
local journal = KEYS[1] .. ':journal'
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
if redis.call('EXISTS', journal) == 0 then return {now, 0, 0, {}, 0} end
local page = redis.call('XRANGE', journal, a.first, a.last, 'COUNT', a.most + 1)
local oldest, pruned = redis.call('XRANGE', journal, '-', '+', 'COUNT', 1)[1], 0
if oldest and tonumber(string.match(oldest[1], '^%d+')) > tonumber(a.first) then
  local info = redis.call('XINFO', 'STREAM', journal)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' and info[i + 1] > redis.call('XLEN', journal) then pruned = 1 end
  end
end
local events = {}
for i = 1, math.min(#page, a.limit) do events[i] = page[i] end
return {now, #page, pruned, events, 1}

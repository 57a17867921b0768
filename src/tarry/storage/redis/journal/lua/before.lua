-- Entries of one queue with events before an id, newest first: at least `limit` events, or all. An entry has at most a thousand.
local a = cmsgpack.unpack(ARGV[1])
local last, entries, n = a.before and string.format('%d', a.before + 999) or '+', {}, 0
while true do
  local page = redis.call('XREVRANGE', KEYS[1] .. ':journal', last, '-', 'COUNT', 20)
  for _, entry in ipairs(page) do
    if n >= a.limit then return {entries, 0} end
    local id, count = string.match(entry[1], '(%d+)-(%d+)')
    local first = id - count + 1
    if not a.before or first < a.before then
      entries[#entries + 1] = entry
      n = n + math.min(id, (a.before or math.huge) - 1) - first + 1
    end
  end
  if #page < 20 then return {entries, 1} end
  last = '(' .. page[#page][1]
end

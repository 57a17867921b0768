-- The last events of a key, from a bounded scan of the stream, newest first, each as an entry of its own. Replies with where the
-- scan ended, if it did not reach the beginning: the caller goes on from there.
-- include: lua/_queue
local found, scanned, position = {}, 0, nil
local last = a.before and string.format('%d', a.before + 999) or '+'

local function look(id, count, entry)
  if not string.find(entry, a.key, 1, true) then return end
  local at, name, position = struct.unpack('<dBc0', entry)
  local head, events = string.sub(entry, 1, position - 1), {}
  for number = id - count + 1, id do
    local begin = position
    local _, _, key, _, _, _, stop = struct.unpack('<BBc0Hc0Hc0Ic0Ic0', entry, begin)
    position = stop
    if key == a.key and (not a.before or number < a.before) then
      events[#events + 1] = {num(number) .. '-1', {'e', head .. string.sub(entry, begin, stop - 1)}}
    end
  end
  for i = #events, 1, -1 do
    if #found < a.limit then found[#found + 1] = events[i] end
  end
end

while scanned < 2000 and #found < a.limit do
  local page = redis.call('XREVRANGE', q .. ':journal', last, '-', 'COUNT', 20)
  for _, entry in ipairs(page) do
    local id, count = string.match(entry[1], '(%d+)-(%d+)')
    look(tonumber(id), tonumber(count), entry[2][2])
    scanned = scanned + count
    position = id - count + 1
  end
  if #page < 20 then return {'', found, queue.name} end
  last = '(' .. page[#page][1]
end
return {position and num(position) or '', found, queue.name}

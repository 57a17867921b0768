-- The journal of a queue: a bounded stream, written by the script that makes the change.
-- The events of a script are one entry, because an entry costs as much as five events. The entry id is the id of its last event and
-- the number of events, whose ids are consecutive. An entry has the time and the queue name, then for each event: flags for its
-- lease (1) and content (2), its kind, key, row (`_rows.lua`), other fields as a table, and the payload.
-- include: lua/_packed
local kept_marks = 20
local with_content = {offered = true, updated = true, edited = true}
local parts, n_parts, n_events = {}, 1, 0  -- in parts: Lua hashes every byte of every string that is made
local kinds, no_rest = {}, '\0\0\0\0\0\0\0\0'

write_events = function()
  if n_events == 0 then return end
  local id = num(next_of('event', n_events))
  parts[1] = struct.pack('<dBc0', now, #queue.name, queue.name)
  redis.call('XADD', q .. ':journal', id .. '-' .. n_events, 'e', table.concat(parts, '', 1, n_parts))
  -- About every thousandth event id is marked. With more than 20 marks, the entries before the oldest mark are trimmed.
  queue.unmarked = queue.unmarked + n_events
  if queue.unmarked >= marked_every then
    queue.unmarked = 0
    if redis.call('RPUSH', q .. ':marks', id) > kept_marks then
      redis.call('XTRIM', q .. ':journal', 'MINID', '~', redis.call('LPOP', q .. ':marks'))
    end
  end
  n_parts, n_events = 1, 0
end

local function append(flags, kind, key, row, rest, payload)
  local head = kinds[kind]
  if not head then
    head = struct.pack('<BBc0', flags, #kind, kind)  -- the flags are those of every event of this kind in a script
    kinds[kind] = head
  end
  local n = n_parts
  parts[n + 1], parts[n + 2], parts[n + 3] = head, struct.pack('<Hc0H', #key, key, #row), row
  parts[n + 4] = rest == '' and payload == '' and no_rest or struct.pack('<Ic0Ic0', #rest, rest, #payload, payload)
  n_parts, n_events = n + 4, n_events + 1
  if n_events == 1000 then write_events() end
end

local function note_queue(kind, detail)
  append(0, kind, '', '', detail and next(detail) and cmsgpack.pack({detail = detail}) or '', '')
end

-- Append an event with the current state of a row. Call it before `end_lease`, because an event has the lease times. `packed`: the
-- packed row, if the caller has it.
local function note(kind, row, more, packed)
  if queue.journal == 'off' then return end
  local flags, rest, payload = more and more.leased and 1 or 0, '', ''
  local detail = more and more.detail
  if with_content[kind] then
    flags = flags + 2
    local options = options_of(row)
    if options.type then
      detail = detail or {}
      detail.type = options.type
    end
    if queue.journal == 'payloads' then
      detail = detail or {}
      payload = more and more.payload or redis.call('HGET', q .. ':payloads', row.key)
      flags = flags + 4
      detail.content_type = options.content_type
      local trace = row.more and row.more.trace
      if options.headers or trace then
        detail.headers = cjson.decode(options.headers or '{}')
        for name, value in pairs(cjson.decode(trace or '{}')) do detail.headers[name] = value end
      end
    end
  elseif kind == 'redriven' then
    flags = flags + 8
  end
  if detail and not next(detail) then detail = nil end  -- an empty table would be packed as a list
  if detail or (more and more.error) then rest = cmsgpack.pack({detail = detail, error = more and more.error}) end
  local part = string.sub(packed or pack(row), 1, 60 + #row.due_at + #row.consumer)  -- what events have, too
  append(flags, kind, row.key, part, rest, payload)
end

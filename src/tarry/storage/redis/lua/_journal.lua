-- The journal of a queue: a stream, written by the script that makes the change, and bounded, since no archive takes it over.
local journal_kept = 20000
local with_content = {offered = true, updated = true, edited = true}

local function append(event, payload)
  local id = num(next_of('event'))
  event.at = now
  if event.detail and not next(event.detail) then event.detail = nil end  -- an empty table would be packed as a list
  local entry = {'XADD', q .. ':journal', 'MAXLEN', '~', journal_kept, id .. '-0', 'e', cmsgpack.pack(event)}
  if payload then
    entry[#entry + 1] = 'p'
    entry[#entry + 1] = payload
  end
  redis.call(unpack(entry))
end

local function note_queue(kind, detail)
  append({kind = kind, queue = queue.name, detail = detail})
end

-- The state of a row as it is now. With the times of its lease, so call it before the lease is ended.
local function note(kind, row, more)
  if queue.journal == 'off' then return end
  more = more or {}
  local event = {
    kind = kind, queue = queue.name, key = row.key, version = row.version, attempt = row.attempt, priority = row.priority,
    due_at = row.due_at, consumer = row.consumer, error = more.error, detail = more.detail,
  }
  if more.leased then event.leased_at, event.lease_until = row.leased_at, row.lease_until end
  local payload
  if with_content[kind] or kind == 'redriven' then
    event.size = more.size or redis.call('HSTRLEN', q .. ':payloads', row.key)
  end
  if with_content[kind] then
    event.hash = row.hash
    local detail = event.detail or {}
    detail.type = row.type
    if queue.journal == 'payloads' then
      payload = redis.call('HGET', q .. ':payloads', row.key)
      detail.content_type = row.content_type
      if row.headers or row.trace then
        detail.headers = cjson.decode(row.headers or '{}')
        for name, value in pairs(cjson.decode(row.trace or '{}')) do detail.headers[name] = value end
      end
    end
    event.detail = next(detail) and detail or nil
  end
  append(event, payload)
end

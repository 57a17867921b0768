-- Lease one message, as `poll.lua` does. If no lease has expired and the first message has no lease, no type and attempts left, its
-- row, set member, event and reply are written here, without building Lua tables. In every other case nothing has been written yet,
-- and `poll.lua` continues with the same parameters. `test_both_ways_store_the_same` in `test_single_polls.py` compares every key of
-- the queue after both: rows, sorted sets, payloads, events and replies, but for versions, tokens, counters and event ids.
-- include: lua/_layout
local request, now, lease_for, again, nonce, slot, name, consumer = struct.unpack('<dddBc32Bc0Bc0Hc0', ARGV[1])
do
  local q, call, format = KEYS[1], redis.call, string.format
  local kept = again == 1 and call('GET', q .. ':request:' .. slot)
  local fields = call('HMGET', q, 'name', 'counters', 'journal', 'priorities', 'paused_at', 'lease_for', 'max_attempts',
    'repeated_at')
  local last, event, unmarked = struct.unpack(counters, fields[2] or no_counters)
  if fields[1] == name and fields[3] ~= 'off' and again < 2 and not fields[8]
    and not (kept and cmsgpack.unpack(kept)[1] >= request) and not fields[5] and unmarked < marked_every - 1 then
    local time = call('TIME')
    local real = time[1] * 1000000 + time[2]
    local now = now < 0 and real or now
    local til, used = format('%d', now), fields[4] or ''
    local member, due_set
    if #call('ZRANGEBYSCORE', q .. ':leased', '-inf', til, 'LIMIT', 0, 1) == 0 then
      for priority = 9, 0, -1 do
        if string.find(used, priority, 1, true) then
          due_set = q .. ':due:' .. priority
          member = call('ZRANGEBYSCORE', due_set, '-inf', til, 'LIMIT', 0, 1)[1]
          if member then break end
        end
      end
    end
    local key = member and string.sub(member, 18)
    local packed = key and call('HGET', q .. ':rows', key)
    if packed then
      local version, _, lease_until, size, attempt, priority, hash, due, _, planned, created_at, _, more, options =
        struct.unpack(layout, packed)
      local own = cmsgpack.unpack(options)
      local attempts = own[5] or tonumber(fields[7])
      if lease_until == 0 and more == '' and not own[2] and not (attempts and attempt >= attempts) then
        lease_until = now + (lease_for >= 0 and lease_for or own[4] or tonumber(fields[6]))
        local token = string.sub(redis.sha1hex(nonce .. version), 1, 32)
        local row = struct.pack(layout, version, now, lease_until, size, attempt + 1, priority, hash, #due, due, #consumer,
          consumer, #planned, planned, created_at, token, 0, '', #options, options)
        local part = string.sub(row, 1, 60 + #due + #consumer)
        event = math.max(event + 1, real)
        call('ZREM', due_set, member)
        call('ZADD', q .. ':leased', format('%d', lease_until), member)
        call('HSET', q .. ':rows', key, row)
        call('XADD', q .. ':journal', format('%d-1', event), 'e',
          struct.pack('<dBc0BBc0Hc0Hc0II', now, #name, name, 1, 6, 'leased', #key, key, #part, part, 0, 0))
        call('HSET', q, 'counters', struct.pack(counters, last, event, unmarked + 1))
        call('SET', q .. ':request:' .. slot, cmsgpack.pack({request, {member}}), 'PX', 60000)
        return {{key}, {row}, {call('HGET', q .. ':payloads', key)}}
      end
    end
  end
end
ARGV[1] = cmsgpack.pack({
  slot = slot, request = request, again = again > 0 and again or nil, queue = name, now = now >= 0 and now or nil, n = 1, nonce = nonce,
  lease_for = lease_for >= 0 and lease_for or nil, consumer = consumer ~= '' and consumer or nil,
})
-- include: messages/lua/poll

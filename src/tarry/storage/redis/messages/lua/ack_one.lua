-- Finish one message, as `ack.lua` does. If the token is valid and the message has no type, it is removed here, without building Lua
-- tables. In every other case nothing has been written yet, and `ack.lua` continues with the same parameters.
-- A leased message is in one sorted set: `leased`, or, if a script has found its lease expired, that of its priority.
-- include: lua/_layout
local request, now, again, token, slot, name, key = struct.unpack('<ddBc32Bc0Bc0Hc0', ARGV[1])
do
  local q, call = KEYS[1], redis.call
  local kept = again == 1 and call('GET', q .. ':request:' .. slot)
  local fields = call('HMGET', q, 'name', 'counters', 'journal', 'repeated_at')
  local last, event, unmarked = struct.unpack(counters, fields[2] or no_counters)
  if fields[1] == name and fields[3] ~= 'off' and again < 2 and not fields[4]
    and not (kept and cmsgpack.unpack(kept)[1] >= request) and unmarked < marked_every - 1 then
    local packed = call('HGET', q .. ':rows', key)
    if packed then
      local version, _, lease_until, _, _, priority, _, due, consumer, _, _, held, _, options = struct.unpack(layout, packed)
      if lease_until > 0 and held == token and not cmsgpack.unpack(options)[2] then
        local time, member = call('TIME'), version .. ':' .. key
        local real = time[1] * 1000000 + time[2]
        local part = string.sub(packed, 1, 60 + #due + #consumer)
        event = math.max(event + 1, real)
        if call('ZREM', q .. ':leased', member) == 0 then call('ZREM', q .. ':due:' .. priority, member) end
        call('HDEL', q .. ':rows', key)
        call('HDEL', q .. ':payloads', key)
        call('XADD', q .. ':journal', string.format('%d-1', event), 'e',
          struct.pack('<dBc0BBc0Hc0Hc0II', now < 0 and real or now, #name, name, 1, 5, 'acked', #key, key, #part, part, 0, 0))
        call('HSET', q, 'counters', struct.pack(counters, last, event, unmarked + 1))
        call('SET', q .. ':request:' .. slot, cmsgpack.pack({request, 'd'}), 'PX', 60000)
        return 'd'
      end
    end
  end
end
ARGV[1] = cmsgpack.pack({
  slot = slot, request = request, again = again > 0 and again or nil, queue = name, now = now >= 0 and now or nil,
  keys = {key}, tokens = token,
})
-- include: messages/lua/ack

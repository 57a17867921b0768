-- Schedules in replies: name, record, body, the time up to which ledger entries are deleted, and the last message if overlaps are skipped.
-- An incomplete change is replied instead: the caller completes it and reads again.
-- include: lua/_registry
-- include: lua/_schedules
local function states(names)
  local rows = {}
  for _, name in ipairs(names) do
    local packed = redis.call('HGET', r .. ':schedules', name)
    local number = packed and redis.call('HGET', r .. ':changing', name)
    if number then return {number, num(now), {}} end
    if packed then
      local state = cmsgpack.unpack(packed)
      local til = forgotten_until(state.ledger)
      local last = state.skips and redis.call('ZREVRANGE', ledger_key(state.ledger) .. ':open', 0, 0)[1]
      local entry = last and entry_of(state.ledger, last)
      rows[#rows + 1] = {
        name, packed, redis.call('HGET', r .. ':schedule_bodies', name), til and num(til) or '',
        entry and entry.queue or '', entry and entry.key or '',
      }
    end
  end
  return {'', num(now), rows}
end

-- Close ticks whose messages are gone; replies how many. The version is compared: a tick may have been planned anew.
-- The last one stays: where overlaps are skipped, a message of its key counts, also a redriven one.
-- include: lua/_registry
-- include: lua/_schedules
local closed = 0
for _, each in ipairs(a.ticks) do
  local open, entry = ledger_key(each.ledger) .. ':open', entry_of(each.ledger, each.member)
  if entry and entry.version == each.version and redis.call('ZREVRANGE', open, 0, 0)[1] ~= each.member then
    closed = closed + redis.call('ZREM', open, each.member)
  end
end
return closed

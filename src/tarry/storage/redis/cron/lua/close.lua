-- The messages of these ticks are gone, and are not looked for again. The version is compared: a tick may have been planned anew.
-- The last one stays: where overlaps are skipped, a message of its key counts, also a redriven one.
-- include: lua/_registry
-- include: lua/_schedules
for _, each in ipairs(a.ticks) do
  local open, entry = ledger_key(each.ledger) .. ':open', entry_of(each.ledger, each.member)
  if entry and entry.version == each.version and redis.call('ZREVRANGE', open, 0, 0)[1] ~= each.member then
    redis.call('ZREM', open, each.member)
  end
end
return 1

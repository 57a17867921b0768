-- Delete old entries, and store up to which tick, by hash: deleted ticks must not fire again. Entries that changed since they were read
-- stay.
-- include: lua/_registry
-- include: lua/_schedules
local forgotten = 0
for _, each in ipairs(a.ticks) do
  local key, over = ledger_key(each.ledger), each.ledger .. ' ' .. each.member
  local entry, score = entry_of(each.ledger, each.member), tonumber(redis.call('ZSCORE', r .. ':ticks_over', over))
  if entry and entry.version == each.version and score < tonumber(a.before) then
    redis.call('HDEL', key .. ':entries', each.member)
    for _, set in ipairs({':ticks', ':runs', ':open'}) do redis.call('ZREM', key .. set, each.member) end
    redis.call('ZREM', r .. ':ticks_over', over)
    local til = tonumber(redis.call('HGET', key .. ':forgotten', entry.hash))
    local last = tonumber(entry.til or entry.tick)
    redis.call('HSET', key .. ':forgotten', entry.hash, num(math.max(til or last, last)))
    forgotten = forgotten + 1
  end
end
return remember(forgotten)

-- Ledger entries in replies: member, entry, queue name, and whether the message may be live.
-- include: lua/_registry
-- include: lua/_schedules
local function row(ledger, member)
  local packed = redis.call('HGET', ledger_key(ledger) .. ':entries', member)
  local queue = cmsgpack.unpack(packed).queue
  local name = queue and redis.call('HGET', r .. ':journals', queue)
  return {member, packed, name or '', redis.call('ZSCORE', ledger_key(ledger) .. ':open', member) and 1 or 0, ledger}
end

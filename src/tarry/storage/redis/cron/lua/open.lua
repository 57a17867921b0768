-- A page of the ticks of a schedule whose messages may be live, in the order of ticks.
-- include: lua/_entries
local number = redis.call('HGET', r .. ':changing', a.name)
if number then return {number, {}} end
local ledger, rows = ledger_of(a.name), {}
if not ledger then return {'', rows} end
for _, member in ipairs(redis.call('ZRANGE', ledger_key(ledger) .. ':open', a.first, a.first + a.limit - 1)) do
  rows[#rows + 1] = row(ledger, member)
end
return {'', rows}

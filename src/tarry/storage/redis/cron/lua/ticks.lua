-- Entries of the ledger of a schedule, newest first: single ticks, and runs of skipped ones that overlap the span. A run has many
-- ticks, so there are few; at most ten thousand are read.
-- include: lua/_entries
local number = redis.call('HGET', r .. ':changing', a.name)
if number then return {number, {}} end
local ledger, rows = ledger_of(a.name), {}
if not ledger then return {'', rows} end
local key, til = ledger_key(ledger), a.til or '+inf'
for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', key .. ':ticks', til, a.since or '-inf', 'LIMIT', 0, a.limit)) do
  rows[#rows + 1] = row(ledger, member)
end
local runs = 0
for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', key .. ':runs', til, '-inf', 'LIMIT', 0, 10000)) do
  if runs == a.limit then break end
  if not a.since or tonumber(entry_of(ledger, member).til) >= tonumber(a.since) then
    rows[#rows + 1] = row(ledger, member)
    runs = runs + 1
  end
end
return {'', rows}

-- A page of entries of all ledgers whose tick and decision are before an instant.
-- include: lua/_entries
local rows = {}
for _, each in ipairs(redis.call('ZRANGEBYSCORE', r .. ':ticks_over', '-inf', '(' .. a.before, 'LIMIT', a.first, a.limit)) do
  local ledger, member = string.match(each, '^(%d+) (.*)$')
  rows[#rows + 1] = row(ledger, member)
end
return rows

#!lua
-- Make the messages of ticks that the ledger has accepted, once per change: a repeated step makes none again, also if the first ones
-- were acked meanwhile. Where another message has the key, none is made, and the ledger names none.
-- include: lua/_once
-- include: lua/_offer
return once('offer', function(items)
  local versions = {}
  for i, item in ipairs(items) do
    local letter, row = offer(item.draft, item.draft.key, item.draft.hash, item.payload)
    if letter == 'c' then note('cron_planned', row, {detail = item.detail}) end
    versions[i] = letter == 'c' and tonumber(row.version) or 0
  end
  return versions
end)

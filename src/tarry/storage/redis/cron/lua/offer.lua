#!lua
-- Create the messages of ticks that the ledger has accepted, once per change: a repeated step creates none, even if the first ones
-- have been acked. If another message has the key, none is created, and the ledger entry has no message.
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

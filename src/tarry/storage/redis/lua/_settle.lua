-- What all five settles share: id and token decide, each lease alone, in the order given.
-- `act` returns nothing for success. `a.quiet`: the queue had another name when the message was leased, and only leases that it
-- has are settled there (the reply for others is '-').
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function settle(verb, act)
  local settled = {}
  for i, item in ipairs(a.leases) do
    local row = row_of(item.key)
    local held = row and row.token == item.token
    local result
    if a.quiet and not held then
      result = '-'
    elseif not row then
      result = 'gone'
    else
      result = held and (act(row, item) or 'done') or 'lease_lost'
      if result == 'lease_lost' then note('refused', row, {detail = {verb = verb}}) end
    end
    settled[i] = result
  end
  return done(settled)
end

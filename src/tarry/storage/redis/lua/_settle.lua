-- The common part of the five settles: key and token decide, for each lease separately, in the given order. The reply has a letter for
-- each lease: done, lease lost, gone.
-- `act` returns nil for success. `a.quiet`: the queue had this name before; leases of other queues are not settled, and
-- their letter is '-'.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function settle(verb, act)
  local settled = {}
  prefetch(a.keys)
  for i, key in ipairs(a.keys) do
    local row = row_of(key)
    local held = row and row.token == string.sub(a.tokens, 32 * i - 31, 32 * i)
    local result
    if a.quiet and not held then
      result = '-'
    elseif not row then
      result = 'g'
    else
      result = held and (act(row, i) or 'd') or 'l'
      if result == 'l' then note('refused', row, {detail = {verb = verb}}, row.packed) end
    end
    settled[i] = result
  end
  return done(table.concat(settled))
end

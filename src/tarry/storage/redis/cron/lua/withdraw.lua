-- Remove messages that were never leased: what was leased once belongs to its consumer, also while it waits for a retry. One that
-- was offered anew by hand has another version, and is left alone. Once per change, so its result can be trusted when it is
-- repeated: a message that is missing then was either withdrawn by this change, or leased before.
-- include: lua/_once
return once('withdraw', function(items)
  local results = {}
  for i, item in ipairs(items) do
    local row = row_of(item.key)
    local is_waiting = row and tonumber(row.version) == item.version and row.attempt == 0
    if is_waiting then
      note('cron_replaced', row, {detail = item.detail})
      remove(row)
    end
    results[i] = is_waiting and 1 or 0
  end
  return results
end)

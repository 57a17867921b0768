-- Remove messages that were never leased: a message that was leased once belongs to its consumer, even while it waits for a retry. A
-- message that was offered again manually has another version, and stays. The step is executed once per change, so a repeated step
-- has the right result: a missing message was either withdrawn by this change or leased before.
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

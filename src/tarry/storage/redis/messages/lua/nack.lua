-- Fail messages: due again after the delay given, or by the retry policy (the message's own, else the request's, else the
-- queue's); or dead, in this script, if no attempt is left. `spread` is the caller's random number for the jitter.
-- include: lua/_settle
local function delay(retry, attempt, spread)
  local policy = cjson.decode(retry)
  local seconds = math.min(policy.initial_for * policy.factor ^ math.min(math.max(attempt, 1) - 1, 62), policy.cap_for)
  return math.floor(seconds * (1 - policy.jitter * spread) * 1000000 + 0.5)
end

return settle('nack', function(row, i)
  local item, options = a.failures[i], options_of(row)
  local allowed = attempts_allowed(row, a.max_attempts)
  local exhausted = is_exhausted(row, a.max_attempts)
  if not exhausted then
    row.due_at = item.due_at or num(now + (item.after or delay(options.retry or a.retry or queue.retry, row.attempt, item.spread)))
    if item.error then
      row.more = row.more or {}
      row.more.last_error = item.error
    end
  end
  note('nacked', row, {leased = true, error = item.error, detail = allowed and {max_attempts = allowed} or nil})
  if exhausted then
    bury(row, 'exhausted', item.error)
  else
    wait(row)
    end_lease(row)
    store(row)
  end
end)

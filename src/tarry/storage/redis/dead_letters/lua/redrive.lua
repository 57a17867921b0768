-- Offer dead letters again, oldest first, where the key is free: a new ready version with a link to the dead one. The letter
-- goes in the same script, so it is either dead or live. A step of a job is kept with its number: repeated, it does nothing.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
if a.job then
  local step = redis.call('HGET', q .. ':steps', a.job)
  step = step and cmsgpack.unpack(step)
  if step and step[1] == a.step then return step[2] end
  if step and step[1] > a.step then return {a.chosen, {}} end  -- another process is further, and this one cannot save its step
end
local revived = {}
for _, version in ipairs(a.versions) do
  local packed = redis.call('HGET', q .. ':letters', version)
  local row = packed and cmsgpack.unpack(packed)
  if row and redis.call('HEXISTS', q .. ':rows', row.key) == 0 then
    redis.call('HSET', q .. ':payloads', row.key, redis.call('HGET', q .. ':dead_payloads', version))
    redis.call('HDEL', q .. ':letters', version)
    redis.call('HDEL', q .. ':dead_payloads', version)
    redis.call('ZREM', q .. ':dead', version)
    row.origin, row.version, row.attempt, row.created_at = row.version, next_of('version'), 0, now
    row.planned_at, row.due_at, row.due_limit = num(now), num(now), nil
    row.last_error, row.expired_at, row.died_at, row.reason, row.error = nil, nil, nil, nil, nil
    row.consumer = nil
    store(row)
    wait(row)
    note('redriven', row, {detail = {from_version = row.origin, job = tonumber(a.job)}})
    revived[#revived + 1] = num(row.version)
    revived[#revived + 1] = row.key
  end
end
local reply = {a.chosen or '', revived}  -- what this step chose: a process that repeats it may see fewer letters
if a.job then redis.call('HSET', q .. ':steps', a.job, cmsgpack.pack({a.step, reply})) end
return done(reply)

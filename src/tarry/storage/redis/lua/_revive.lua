-- A dead letter as a new ready version with attempts reset and a link to the old one.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function is_free_key(key) return redis.call('HEXISTS', q .. ':rows', key) == 0 end

local function revive(row, payload, kind, detail)
  redis.call('HSET', q .. ':payloads', row.key, payload)
  row.origin, row.version, row.attempt, row.created_at = row.version, next_of('version'), 0, now
  row.planned_at, row.due_at, row.due_limit = num(now), num(now), nil
  row.last_error, row.expired_at, row.died_at, row.reason, row.error = nil, nil, nil, nil, nil
  row.consumer = nil
  detail.from_version = row.origin
  store(row)
  wait(row)
  note(kind, row, {detail = detail})
end

-- A queue keeps the result of the last step of each job: repeated, the step does nothing and replies the same. Where another process
-- is further, this one cannot save its step, whatever the reply is.
local function step_of(job)
  local packed = redis.call('HGET', q .. ':steps', job)
  local step = packed and cmsgpack.unpack(packed)
  if step and step[1] == a.step then return step[2] end
  if step and step[1] > a.step then return {a.chosen, {}, {}} end
end

local function keep_step(job, reply)
  redis.call('HSET', q .. ':steps', job, cmsgpack.pack({a.step, reply}))
  return done(reply)
end

local function remove_letter(version)
  redis.call('HDEL', q .. ':letters', version)
  redis.call('HDEL', q .. ':dead_payloads', version)
  redis.call('ZREM', q .. ':dead', version)
end

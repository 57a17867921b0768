-- A dead letter as a new ready version with attempts reset and a link to the old one.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function is_free_key(key) return row_of(key) == nil end

if a.jitter then math.randomseed(a.seed) end  -- otherwise every script has the same numbers

local function revive(row, payload, kind, detail)
  redis.call('HSET', q .. ':payloads', row.key, payload)
  detail.from_version = tonumber(row.version)
  row.more = {origin = row.version, trace = row.more.trace}
  row.version, row.attempt, row.created_at, row.consumer = num(next_of('version')), 0, now, ''
  if a.max_attempts then
    local options = {}
    for name, value in pairs(options_of(row)) do options[name] = value end
    options.max_attempts = a.max_attempts
    row.options = pack_options(options)
  end
  local due = num(now + (a.jitter and math.floor(math.random() * a.jitter) or 0))
  row.planned_at, row.due_at = due, due
  wait(row)
  note(kind, row, {detail = detail}, store(row))
end

-- A queue keeps the result of the last step of each job: a repeated step changes nothing and has the same reply. If another process is
-- further, this process cannot save its step, whatever the reply is. Results are kept for the thousand jobs with the latest steps.
local function step_of(job)
  local packed = redis.call('HGET', q .. ':steps', job)
  local step = packed and cmsgpack.unpack(packed)
  if step and step[1] == a.step then
    redis.call('HSET', q .. ':steps', job, packed)  -- a write, so that WAIT waits for the replicas, too
    return step[2]
  end
  if step and step[1] > a.step then return {a.chosen, {}, {}} end
end

local function keep_step(job, reply)
  redis.call('HSET', q .. ':steps', job, cmsgpack.pack({a.step, reply}))
  redis.call('ZADD', q .. ':step_times', num(real), job)
  local surplus = redis.call('ZCARD', q .. ':step_times') - 1000
  for _, other in ipairs(surplus > 0 and redis.call('ZRANGE', q .. ':step_times', 0, surplus - 1) or {}) do
    redis.call('HDEL', q .. ':steps', other)
    redis.call('ZREM', q .. ':step_times', other)
  end
  return done(reply)
end

local function remove_letter(version)
  redis.call('HDEL', q .. ':letters', version)
  redis.call('HDEL', q .. ':dead_payloads', version)
  redis.call('ZREM', q .. ':dead', version)
end

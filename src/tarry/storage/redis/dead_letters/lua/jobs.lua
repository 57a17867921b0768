-- Redrive jobs: one by its number, the running one that is due first, or a page of the newest.
local a = cmsgpack.unpack(ARGV[1])
local r = KEYS[1]
local ids = {}
if a.id then
  ids = {a.id}
elseif a.due_first then
  ids = redis.call('ZRANGE', r .. ':jobs_due', 0, 0)
else
  local last = tonumber(a.before or (redis.call('GET', r .. ':last_job') or 0) + 1) - 1
  for id = last, math.max(last - 199, 1), -1 do ids[#ids + 1] = id end
end
local jobs = {}
for _, id in ipairs(ids) do
  local job = redis.call('HGET', r .. ':jobs', id)
  if job then
    jobs[#jobs + 1] = tonumber(id)
    jobs[#jobs + 1] = job
  end
end
local time = redis.call('TIME')
return {string.format('%.0f', a.now or time[1] * 1000000 + time[2]), jobs}

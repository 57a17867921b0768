-- The time, and bulk jobs: one by its number, or the newest.
local a = cmsgpack.unpack(ARGV[1])
local r = KEYS[1]
local first, last = a.id, a.id
if not a.id then
  last = tonumber(redis.call('GET', r .. ':last_bulk_job') or 0)
  first = math.max(last - a.limit + 1, 1)
end
local jobs = {}
for id = last, first, -1 do
  local job = redis.call('HGET', r .. ':bulk_jobs', id)
  if job then
    jobs[#jobs + 1] = tonumber(id)
    jobs[#jobs + 1] = job
  end
end
local time = redis.call('TIME')
return {string.format('%.0f', a.now or time[1] * 1000000 + time[2]), jobs}

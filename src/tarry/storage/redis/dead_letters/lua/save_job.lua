-- Compare-and-set: a job that made another step since it was read is not overwritten. 1: saved.
local a = cmsgpack.unpack(ARGV[1])
local r = KEYS[1]
local job = redis.call('HGET', r .. ':jobs', a.id)
if not job or cjson.decode(job).job.step ~= a.step then return 0 end
redis.call('HSET', r .. ':jobs', a.id, ARGV[2])
if a.next_at then
  redis.call('ZADD', r .. ':jobs_due', a.next_at, a.id)
else
  redis.call('ZREM', r .. ':jobs_due', a.id)
end
return 1

-- Store a redrive job under the next number, once per request: the same request again finds the same job.
local a = cmsgpack.unpack(ARGV[1])
local r = KEYS[1]
local id = redis.call('HGET', r .. ':job_requests', a.job_request)
if not id then
  id = redis.call('INCR', r .. ':last_job')
  redis.call('HSET', r .. ':jobs', id, ARGV[2])
  redis.call('ZADD', r .. ':jobs_due', a.next_at, id)
end
redis.call('HSET', r .. ':job_requests', a.job_request, id)  -- always a write, so that WAIT waits for the replicas
return {tonumber(id), redis.call('HGET', r .. ':jobs', id)}

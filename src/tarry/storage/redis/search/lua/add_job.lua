-- Store a bulk job under the next number.
-- include: lua/_registry
local id = redis.call('INCR', r .. ':last_bulk_job')
redis.call('HSET', r .. ':bulk_jobs', id, ARGV[2])
return remember(id)

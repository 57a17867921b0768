-- Compare-and-set by the whole text: a job that was changed since it was read is not overwritten. 1: saved.
-- include: lua/_registry
if redis.call('HGET', r .. ':bulk_jobs', a.id) ~= ARGV[3] then return remember(0) end
redis.call('HSET', r .. ':bulk_jobs', a.id, ARGV[2])
return remember(1)

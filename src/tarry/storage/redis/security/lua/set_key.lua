-- Replace an API key, if it is still as it was read. 1: replaced.
-- include: lua/_registry
if redis.call('HGET', r .. ':api_keys', a.id) ~= ARGV[3] then return remember(0) end
redis.call('HSET', r .. ':api_keys', a.id, ARGV[2])
return remember(1)

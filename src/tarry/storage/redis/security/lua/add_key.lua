-- Store an API key under its id, which must be free.
-- include: lua/_registry
return remember(redis.call('HSETNX', r .. ':api_keys', a.id, ARGV[2]))

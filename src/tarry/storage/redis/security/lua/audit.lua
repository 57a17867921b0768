-- Append a row to the audit log under the next number. The last hundred thousand are kept.
-- include: lua/_registry
local id = redis.call('INCR', r .. ':last_audit')
redis.call('HSET', r .. ':audits', id, cmsgpack.pack({num(now), ARGV[2]}))
redis.call('HDEL', r .. ':audits', id - 100000)
return remember(id)

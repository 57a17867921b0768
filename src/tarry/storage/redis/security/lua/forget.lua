-- Delete responses that are older than allowed, at most `limit`.
-- include: lua/_registry
local old = redis.call('ZRANGEBYSCORE', r .. ':responses_at', '-inf', '(' .. num(now - a.older_than), 'LIMIT', 0, a.limit)
for _, key in ipairs(old) do
  redis.call('HDEL', r .. ':responses', key)
  redis.call('HDEL', r .. ':bodies', key)
  redis.call('ZREM', r .. ':responses_at', key)
end
return remember(#old)

-- End a request: keep its response, or with no status give it up, so that it may be executed again.
-- include: lua/_registry
if a.status then
  redis.call('HSET', r .. ':responses', a.key, cmsgpack.pack({fingerprint = a.fingerprint, status = a.status}))
  redis.call('HSET', r .. ':bodies', a.key, ARGV[2])
  redis.call('ZADD', r .. ':responses_at', num(now), a.key)
end
redis.call('DEL', r .. ':claim:' .. a.key)
return remember(1)

-- Begin a request with an idempotency key: its stored response, or the right to execute it. Other processes are refused until
-- it is kept or given up, at most for a minute: then the process that began it has ended.
-- include: lua/_registry
local packed = redis.call('HGET', r .. ':responses', a.key)
if packed then
  local stored = cmsgpack.unpack(packed)
  if stored.fingerprint ~= a.fingerprint then return {'other'} end
  return {'stored', stored.status, redis.call('HGET', r .. ':bodies', a.key)}
end
local claim = r .. ':claim:' .. a.key
local holder, own = redis.call('GET', claim), a.slot .. ' ' .. a.request
if holder and holder ~= own then return {'busy'} end
redis.call('SET', claim, own, 'PX', 60000)
return {'claimed'}

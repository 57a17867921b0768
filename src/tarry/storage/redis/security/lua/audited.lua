-- Add the result of an action to its row.
local a = cmsgpack.unpack(ARGV[1])
if redis.call('HEXISTS', KEYS[1] .. ':audits', a.id) == 1 then
  local row = cmsgpack.unpack(redis.call('HGET', KEYS[1] .. ':audits', a.id))
  redis.call('HSET', KEYS[1] .. ':audits', a.id, cmsgpack.pack({row[1], row[2], ARGV[2]}))
end
return 1

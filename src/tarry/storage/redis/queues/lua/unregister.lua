-- Free a name, if it still leads to this queue, which has another one or is deleted by its own record. Leases that were made
-- under the name are found by `former`.
local a = cmsgpack.unpack(ARGV[1])
local names, former = KEYS[1] .. ':names', KEYS[1] .. ':former'
if redis.call('HGET', names, a.name) == a.id then redis.call('HDEL', names, a.name) end
if a.deleting then redis.call('SADD', KEYS[1] .. ':deleting', a.id) end
if a.new_name then
  redis.call('HSET', names, a.new_name, a.id)
  redis.call('HSET', KEYS[1] .. ':journals', a.id, a.new_name)
  local ids = redis.call('HGET', former, a.name)
  if not ids then
    redis.call('HSET', former, a.name, a.id)
  elseif not string.find(',' .. ids .. ',', ',' .. a.id .. ',', 1, true) then
    redis.call('HSET', former, a.name, ids .. ',' .. a.id)
  end
end
return 1

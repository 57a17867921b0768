-- Free a name, if it still leads to this queue, which has another one or is deleted by its own record. Leases that were made
-- under the name are found by `former`. `reservation`: the queue did not get the name, and cannot get it by this reservation any more.
-- include: lua/_registry
-- include: lua/_schedules
local names, former = r .. ':names', r .. ':former'
if a.reservation then
  if redis.call('HGET', names, a.name) == '~' .. a.id .. ':' .. a.reservation then redis.call('HDEL', names, a.name) end
  return remember(1)
end
if redis.call('HGET', names, a.name) == a.id then
  redis.call('HDEL', names, a.name)
  if a.new_name then rename_queue(a.name, a.new_name) end
end
if a.deleting then redis.call('SADD', r .. ':deleting', a.id) end
if a.new_name then
  redis.call('HSET', names, a.new_name, a.id)
  redis.call('HSET', r .. ':journals', a.id, a.new_name)
  local ids = redis.call('HGET', former, a.name)
  if not ids then
    redis.call('HSET', former, a.name, a.id)
  elseif not string.find(',' .. ids .. ',', ',' .. a.id .. ',', 1, true) then
    redis.call('HSET', former, a.name, ids .. ',' .. a.id)
  end
end
return remember(1)

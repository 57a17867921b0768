-- Give a name to a new queue, if no other has it: the one step that creates a queue. Replies with the id that has the name.
local a = cmsgpack.unpack(ARGV[1])
if redis.call('HSETNX', KEYS[1] .. ':names', a.name, a.id) == 1 then
  redis.call('HSET', KEYS[1] .. ':journals', a.id, a.name)
  return a.id
end
return redis.call('HGET', KEYS[1] .. ':names', a.name)

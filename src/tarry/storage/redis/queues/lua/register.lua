-- Give a name to a new queue, if no other has it: the one step that creates a queue. Replies with the id that has the name.
local a = cmsgpack.unpack(ARGV[1])
local names = KEYS[1] .. ':names'
if redis.call('HSETNX', names, a.name, a.id) == 1 then
  redis.call('HSET', KEYS[1] .. ':journals', a.id, a.name)
  return a.id
end
local entry = redis.call('HGET', names, a.name)
redis.call('HSET', names, a.name, entry)  -- a write, so that WAIT waits for the replicas, too
return string.match(entry, '%x+')

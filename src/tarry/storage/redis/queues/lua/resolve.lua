-- The id of the queue with this name, the ids of queues that had it before, and the number of its reservation: the name is about to be
-- given to the queue, whose own record decides.
-- The name is written again, so that WAIT waits until a replica has it: without it no other process would find the messages.
local a = cmsgpack.unpack(ARGV[1])
local entry = redis.call('HGET', KEYS[1] .. ':names', a.name)
if entry then redis.call('HSET', KEYS[1] .. ':names', a.name, entry) end
local id, number = string.match(entry or '', '^~?(%x*):?(%d*)$')
return {id, redis.call('HGET', KEYS[1] .. ':former', a.name) or '', number}

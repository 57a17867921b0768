-- The id of the queue with this name, and the ids of queues that had it before. A name that begins with ~ is about to be given
-- to a queue, whose own record decides.
-- The name is written again, so that WAIT waits until a replica has it: without it no other process would find the messages.
local a = cmsgpack.unpack(ARGV[1])
local id = redis.call('HGET', KEYS[1] .. ':names', a.name)
if id then redis.call('HSET', KEYS[1] .. ':names', a.name, id) end
return {id and string.gsub(id, '^~', '') or '', redis.call('HGET', KEYS[1] .. ':former', a.name) or ''}

-- The id of the queue with this name, and the ids of queues that had it before. A name that begins with ~ is about to be given
-- to a queue, whose own record decides.
local a = cmsgpack.unpack(ARGV[1])
local id = redis.call('HGET', KEYS[1] .. ':names', a.name)
return {id and string.gsub(id, '^~', '') or '', redis.call('HGET', KEYS[1] .. ':former', a.name) or ''}

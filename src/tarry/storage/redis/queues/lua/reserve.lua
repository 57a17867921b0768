-- Reserve a name for a queue that is about to be renamed; the same queue may try again, with a new number. Replies with the number;
-- 0: another queue has the name. The name stays reserved if the process ends before it changes the queue's record, until it is used.
local a = cmsgpack.unpack(ARGV[1])
local names = KEYS[1] .. ':names'
local entry = redis.call('HGET', names, a.name)
if entry and string.match(entry, '^~(%x+)') ~= a.id then return 0 end
local number = redis.call('INCR', KEYS[1] .. ':last_reservation')
redis.call('HSET', names, a.name, '~' .. a.id .. ':' .. number)
return number

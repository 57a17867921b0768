-- Reserve a name for a queue that is about to be renamed; the same queue may try again. 1: reserved.
local a = cmsgpack.unpack(ARGV[1])
local names = KEYS[1] .. ':names'
if redis.call('HSETNX', names, a.name, '~' .. a.id) == 1 then return 1 end
return redis.call('HGET', names, a.name) == '~' .. a.id and 1 or 0

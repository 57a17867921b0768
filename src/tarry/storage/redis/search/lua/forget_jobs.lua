-- Delete bulk jobs by their numbers; returns how many. A job that has ended changes no more, so its number is enough.
local a = cmsgpack.unpack(ARGV[1])
local forgotten = 0
for _, id in ipairs(a.ids) do forgotten = forgotten + redis.call('HDEL', KEYS[1] .. ':bulk_jobs', id) end
return forgotten

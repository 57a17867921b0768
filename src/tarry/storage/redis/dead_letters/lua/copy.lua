-- Copies of dead letters with their payloads, for another queue. They stay here until `moved.lua`, so none is lost in between.
-- include: lua/_queue
local letters = {}
for _, version in ipairs(a.versions) do
  local packed = redis.call('HGET', q .. ':letters', version)
  if packed then letters[#letters + 1] = {packed, redis.call('HGET', q .. ':dead_payloads', version)} end
end
return cmsgpack.pack(letters)

-- Delete dead letters by version, each with its event. Letters that are gone already are not counted.
-- include: lua/_queue
-- include: lua/_journal
local discarded = 0
for _, version in ipairs(a.versions) do
  local packed = redis.call('HGET', q .. ':letters', version)
  if packed then
    note('discarded', letter_of(packed))
    redis.call('HDEL', q .. ':letters', version)
    redis.call('HDEL', q .. ':dead_payloads', version)
    redis.call('ZREM', q .. ':dead', version)
    discarded = discarded + 1
  end
end
return remember(discarded)

-- Exact numbers without a scan: the sorted sets know how many of their members are before and after an instant.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
return_expired(q)
local delayed, ready, oldest = 0, 0, now
for priority = 0, 9 do
  local set = q .. ':due:' .. priority
  delayed = delayed + redis.call('ZCOUNT', set, '(' .. num(now), '+inf')
  ready = ready + redis.call('ZCOUNT', set, '-inf', num(now))
  local head = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  if head then oldest = math.min(oldest, tonumber(head)) end
end
local expired = redis.call('ZCOUNT', q .. ':leased', '-inf', num(now))  -- of more than a thousand, the rest
local leased = redis.call('ZCARD', q .. ':leased') - expired
return {delayed, ready + expired, leased, redis.call('ZCARD', q .. ':dead'), now - oldest}

-- One schedule, or a page of all by name.
-- include: lua/_states
if a.name then return states({a.name}) end
local after = a.after and '(' .. a.after or '-'
return states(redis.call('ZRANGEBYLEX', r .. ':schedule_names', after, '+', 'LIMIT', 0, a.limit))

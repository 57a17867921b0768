-- The server's clock.
local time = redis.call('TIME')
return {time[1], time[2]}

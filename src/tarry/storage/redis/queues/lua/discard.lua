-- Remove a queue that was made but not registered, because another one got the name first.
redis.call('DEL', KEYS[1], KEYS[1] .. ':journal')
return 1

-- Change the settings that are named, and no others: concurrent edits of other settings are kept.
-- include: lua/_queue
-- include: lua/_journal
for _, name in ipairs(a.only) do
  if a.settings[name] == nil then
    redis.call('HDEL', q, name)
  else
    redis.call('HSET', q, name, a.settings[name])
  end
end
redis.call('HSET', q, 'updated_at', num(now))
note_queue('queue_edited')
return remember(redis.call('HGETALL', q))

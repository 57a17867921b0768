-- Resume a paused queue, and wake its consumers: messages may have become due meanwhile.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
if queue.paused_at then
  redis.call('HDEL', q, 'paused_at', 'paused_reason')
  redis.call('HSET', q, 'updated_at', num(now))
  note_queue('queue_resumed')
  queue.paused_at = false
  local waiters = redis.call('HVALS', q .. ':waiters')
  for _, packed in ipairs(waiters) do
    local kind = cmsgpack.unpack(packed).type
    earliest[kind or ''] = now
  end
end
return done(redis.call('HGETALL', q))

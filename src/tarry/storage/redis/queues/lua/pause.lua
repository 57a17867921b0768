-- Pause a queue; if it is paused already, its time and reason stay.
-- include: lua/_queue
-- include: lua/_journal
if not queue.paused_at then
  redis.call('HSET', q, 'paused_at', num(now), 'updated_at', num(now))
  if a.reason then redis.call('HSET', q, 'paused_reason', a.reason) end
  note_queue('queue_paused', {reason = a.reason})
end
return remember(redis.call('HGETALL', q))

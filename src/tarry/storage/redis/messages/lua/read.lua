-- One live message: its row, its payload, the time, and the queue's `max_attempts`.
-- include: lua/_queue
return {redis.call('HGET', q .. ':rows', a.key), redis.call('HGET', q .. ':payloads', a.key), num(now), queue.max_attempts}

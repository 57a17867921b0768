-- Remove a batch of a deleted queue's messages and dead letters, each with its event, then the record. Replies with the
-- number removed, and with the cursors of the next batch unless nothing is left. An empty page proves nothing: HSCAN gives up after
-- ten times its COUNT of empty buckets, which the batches before have left.
-- The journal stays for a day, so that readers who follow it learn what happened.
-- include: lua/_deleted
-- include: lua/_journal
-- include: lua/_rows
local removed, cursors = 0, a.cursors
for n, kind in ipairs({{':rows', 'dropped'}, {':letters', 'discarded'}}) do
  local cursor, page = unpack(redis.call('HSCAN', q .. kind[1], cursors[n], 'COUNT', 500))
  cursors[n], removed = cursor, removed + #page / 2
  for i = 1, #page, 2 do
    local row = unpacked(page[i], page[i + 1])
    row.key = row.more and row.more.key or page[i]
    note(kind[2], row)
    if kind[1] == ':rows' then
      remove(row)
    else
      redis.call('HDEL', q .. ':letters', page[i])
      redis.call('HDEL', q .. ':dead_payloads', page[i])
      redis.call('ZREM', q .. ':dead', page[i])
    end
  end
end
write()
if redis.call('HLEN', q .. ':rows') + redis.call('HLEN', q .. ':letters') > 0 then return {removed, cursors} end
note_queue('queue_deleted')
write()
redis.call('EXPIRE', q .. ':journal', 86400)
redis.call('DEL', q, q .. ':waiters', q .. ':steps', q .. ':step_times', q .. ':changes', q .. ':marks')
return {removed, {}}

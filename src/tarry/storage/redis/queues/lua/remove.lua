-- Remove a batch of what a deleted queue still has, each message with its event; then its record. 0: nothing is left.
-- The journal stays for a day, so that readers who follow it learn what happened.
-- include: lua/_deleted
-- include: lua/_journal
-- include: lua/_rows
local removed = 0
for _, kind in ipairs({{':rows', 'dropped'}, {':letters', 'discarded'}}) do
  local page = redis.call('HSCAN', q .. kind[1], 0, 'COUNT', 500)[2]
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
    removed = removed + 1
  end
end
if removed == 0 then note_queue('queue_deleted') end
write()
if removed > 0 then return removed end
redis.call('EXPIRE', q .. ':journal', 86400)
redis.call('DEL', q, q .. ':waiters', q .. ':steps', q .. ':step_times', q .. ':changes', q .. ':marks')
return 0

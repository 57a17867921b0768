-- Remove a batch of about a thousand live messages, each with its event. The caller continues with the cursor until it is 0: every
-- message that is live from the first batch to the last is removed.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local page = redis.call('HSCAN', q .. ':rows', a.cursor, 'COUNT', 1000)
for i = 1, #page[2], 2 do
  local row = row_of(page[2][i])
  note('dropped', row)
  remove(row)
end
local count = a.count + #page[2] / 2
if page[1] == '0' then note_queue('queue_purged', {count = count}) end
return done({page[1], count})

-- The last events of a key, from a bounded scan of the stream, newest first. Replies with where the scan ended, if it did not
-- reach the beginning: the caller goes on from there.
-- include: lua/_queue
local function key_in(entry) return cmsgpack.unpack(entry[2][2]).key end
local page = redis.call('XREVRANGE', q .. ':journal', a.before and '(' .. a.before or '+', '-', 'COUNT', 2000)
local events = {}
for _, entry in ipairs(page) do
  if key_in(entry) == a.key and #events < a.limit then events[#events + 1] = entry end
end
return {#page == 2000 and #events < a.limit and page[#page][1] or '', events, queue.name}

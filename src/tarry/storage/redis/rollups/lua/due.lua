-- How many live messages come due in each interval, and how many of them are retries: of each priority the first `limit`, and
-- up to ten thousand leased ones. Replies with pairs of numbers by interval.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local counts, retries = {}, {}
local function count(due, row)
  local bucket = math.floor((due - a.since) / a.every)
  counts[bucket] = (counts[bucket] or 0) + 1
  retries[bucket] = (retries[bucket] or 0) + (row.attempt > 0 and 1 or 0)
end
for priority = 0, 9 do
  local set, last = q .. ':due:' .. priority, '(' .. num(a.til)
  local page = redis.call('ZRANGEBYSCORE', set, num(a.since), last, 'WITHSCORES', 'LIMIT', 0, a.limit)
  for i = 1, #page, 2 do count(tonumber(page[i + 1]), row_of(key_of(page[i]))) end
end
for _, member in ipairs(redis.call('ZRANGE', q .. ':leased', 0, 9999)) do
  local row = row_of(key_of(member))
  local due = tonumber(row.due_at)
  if due >= a.since and due < a.til then count(due, row) end
end
local reply = {}
for bucket, n in pairs(counts) do
  reply[#reply + 1] = bucket
  reply[#reply + 1] = n
  reply[#reply + 1] = retries[bucket]
end
return reply

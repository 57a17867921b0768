-- How many live messages come due in each interval, and how many of them are retries: a page of one of the queue's sets, from a
-- position on. Replies with the position of the next page (none: the end), then with three numbers by interval.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
-- include: lua/_ranks
local set = q .. a.set
local first = a.set == ':leased' and 0 or redis.call('ZCOUNT', set, '-inf', '(' .. num(a.since))
if a.after_score then first = rank_after(set, a.after_score, a.after_version) end
local page = redis.call('ZRANGE', set, first, first + a.limit - 1, 'WITHSCORES')
local counts, retries = {}, {}
for i = 1, #page, 2 do
  local row = row_of(key_of(page[i]))
  local due = tonumber(row.due_at)
  if due >= a.since and due < a.til then
    local bucket = math.floor((due - a.since) / a.every)
    counts[bucket] = (counts[bucket] or 0) + 1
    retries[bucket] = (retries[bucket] or 0) + (row.attempt > 0 and 1 or 0)
  end
end
local is_last = #page < 2 * a.limit or (a.set ~= ':leased' and tonumber(page[#page]) >= a.til)
local rows = {is_last and '' or page[#page], is_last and 0 or version_of(page[#page - 1])}
for bucket, n in pairs(counts) do
  rows[#rows + 1] = bucket
  rows[#rows + 1] = n
  rows[#rows + 1] = retries[bucket]
end
return rows

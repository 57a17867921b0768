#!lua
-- Store messages, one row per live key, and reply with one letter per draft: created, updated, ignored.
-- All or none, because nothing in it can fail after the first write. A full queue refuses all if one key is new.
-- include: lua/_offer
if queue.max_depth then
  local free, new = queue.max_depth - redis.call('HLEN', q .. ':rows'), 0
  for _, draft in ipairs(a.drafts) do
    if redis.call('HEXISTS', q .. ':rows', draft.key) == 0 then new = new + 1 end
  end
  if new > math.max(free, 0) then return 'full:' .. queue.max_depth end
end
local outcomes = {}
for i, draft in ipairs(a.drafts) do outcomes[i] = (offer(draft, ARGV[i + 1])) end
return done(table.concat(outcomes))

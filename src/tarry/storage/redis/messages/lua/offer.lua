#!lua
-- Store messages, one row per live key, and reply with one letter per draft: created, updated, ignored.
-- All or none, because nothing in it can fail after the first write. A full queue refuses all if one key is new.
-- `drafts` has what most messages of a batch have in common, and `uses` which of them each message has.
-- include: lua/_offer
if not a.fresh then prefetch(a.keys) end
if queue.max_depth then
  local free, new = queue.max_depth - redis.call('HLEN', q .. ':rows'), 0
  for _, key in ipairs(a.keys) do
    if not live_of(key) then new = new + 1 end
  end
  if new > math.max(free, 0) then return 'full:' .. queue.max_depth end
end
local outcomes = {}
for i, key in ipairs(a.keys) do
  local draft = a.drafts[a.uses and a.uses[i] or 1]
  outcomes[i] = (offer(draft, key, string.sub(a.hashes, 16 * i - 15, 16 * i), ARGV[i + 1]))
end
return done(table.concat(outcomes))

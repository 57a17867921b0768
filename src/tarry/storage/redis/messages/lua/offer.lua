#!lua
-- Store messages, one row per live key, and reply with one letter per draft: created, updated, ignored.
-- All or none, because nothing in it can fail after the first write.
-- include: lua/_offer
local outcomes = {}
for i, draft in ipairs(a.drafts) do outcomes[i] = (offer(draft, ARGV[i + 1])) end
return done(table.concat(outcomes))

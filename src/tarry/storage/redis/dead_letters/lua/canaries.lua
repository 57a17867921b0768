-- The state of redriven messages: live, dead (or dead and redriven again), and the error.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local results = {}
for i, version in ipairs(a.versions) do
  local row, packed = row_of(a.keys[i]), redis.call('HGET', q .. ':letters', version)
  local again = row and row.more and row.more.origin == version
  results[#results + 1] = row and row.version == version and 1 or 0
  results[#results + 1] = (packed or again) and 1 or 0
  results[#results + 1] = packed and letter_of(packed).more.error or ''
end
return results

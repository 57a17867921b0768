-- How many of these versions are dead, and how many are live; each with its key.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local dead, live = 0, 0
for i, version in ipairs(a.versions) do
  local row = row_of(a.keys[i])
  dead = dead + redis.call('HEXISTS', q .. ':letters', version)
  if row and row.version == version then live = live + 1 end
end
return {dead, live}

-- Attempts of messages by key and version ('': any version); -1: no such message is live.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local attempts = {}
for i, key in ipairs(a.keys) do
  local row = row_of(key)
  local is_live = row and (a.versions[i] == '' or row.version == a.versions[i])
  attempts[i] = is_live and row.attempt or -1
end
return attempts

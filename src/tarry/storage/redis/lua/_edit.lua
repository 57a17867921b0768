-- Checks shared by edits, burials by key and drops: the version must be current, and a leased message needs `force`.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function refused(row)
  if a.version and row.version ~= a.version then return 'changed' end
  if not a.force and not is_free(row) then return 'leased' end
end

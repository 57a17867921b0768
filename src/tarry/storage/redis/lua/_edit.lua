-- What edits, burials by key and drops share: a version that must still be current, and a lease that must be forced.
-- include: lua/_queue
-- include: lua/_journal
-- include: lua/_rows
local function refused(row)
  if a.version and row.version ~= a.version then return 'changed' end
  if not a.force and not is_free(row) then return 'leased' end
end

-- Remove one live message if it has the given version. A lease is lost with it, unless the caller refuses leased messages.
-- include: lua/_edit
local row = row_of(a.key)
if not row or refused(row) then return done(0) end
note('dropped', row)
remove(row)
return done(1)

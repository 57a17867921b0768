-- Remove one live message, if it still has the version given; an unfinished lease is lost with it unless the caller forbids.
-- include: lua/_edit
local row = row_of(a.key)
if not row or refused(row) then return done(0) end
note('dropped', row)
remove(row)
return done(1)

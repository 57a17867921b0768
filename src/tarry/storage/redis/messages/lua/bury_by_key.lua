-- Bury a message by its key. The version is compared in the same script, so a concurrent update is not buried.
-- include: lua/_edit
local row = row_of(a.key)
local problem = not row and 'gone' or refused(row)
if not problem then
  unplace(row)
  end_lease(row)  -- the holder of the lease is not involved
  bury(row, 'buried', a.error)
end
return done(problem or 'updated')

-- Stay the leader (or with `lead_for` 0, resign), if the lease has not expired.
-- include: lua/_leaders
if not leads(a.name, a.fence) then return remember(false) end
return remember(keep(a.name, {holder = a.holder, fence = a.fence, lease_until = now + a.lead_for}))

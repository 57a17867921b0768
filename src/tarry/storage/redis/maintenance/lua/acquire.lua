-- Become the leader if no other process is. The token grows with every change, also if the same process comes again.
-- include: lua/_leaders
local leader = last(a.name)
if leader and leader.lease_until > now and leader.holder ~= a.holder then return remember(false) end
local fence = leader and leader.fence + 1 or 1
return remember(keep(a.name, {holder = a.holder, fence = fence, lease_until = now + a.lead_for}))

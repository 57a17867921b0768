-- The version that divides what was dead when a job began from what dies later.
-- include: lua/_queue
return remember(num(next_of('version')))

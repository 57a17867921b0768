-- The version that separates letters that were dead when a job began from later ones.
-- include: lua/_queue
return remember(num(next_of('version')))

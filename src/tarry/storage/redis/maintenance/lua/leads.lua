-- Whether a leadership is valid. What it allows happens in another script, in the slot of a queue: two leaders can both do it
-- within that moment, which is harmless, because each script of a sweep is atomic and finds what the other has done.
-- include: lua/_leaders
return leads(a.name, a.fence) and 1 or 0

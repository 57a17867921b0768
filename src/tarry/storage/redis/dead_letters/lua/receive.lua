#!lua
-- The step of a redrive in its target: offer copies of dead letters of another queue where the key is free. Once per step of the job, so a
-- repetition makes no message again, also if the first one was acked meanwhile. Replies with what the step chose, with the versions
-- and keys that are live here, and with the versions that `moved.lua` may delete there.
-- include: lua/_revive
local job = 'from:' .. a.job
local before = step_of(job)
if before then return before end
local revived, moved = {}, {}
for _, letter in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = letter_of(letter[1])
  if is_free_key(row.key) then
    moved[#moved + 1] = row.version
    revive(row, letter[2], 'offered', {from_queue = a.from_queue, job = tonumber(a.job)})
    revived[#revived + 1] = row.version
    revived[#revived + 1] = row.key
  end
end
return keep_step(job, {a.chosen, revived, moved})

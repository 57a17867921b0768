-- Offer dead letters again, oldest first, where the key is free: a new ready version with a link to the dead one. The letter
-- goes in the same script, so it is either dead or live. A step of a job is kept with its number: repeated, it does nothing.
-- include: lua/_revive
local before = a.job and step_of(a.job)
if before then return before end
local revived = {}
for _, version in ipairs(a.versions) do
  local packed = redis.call('HGET', q .. ':letters', version)
  local row = packed and letter_of(packed)
  if row and is_free_key(row.key) then
    local payload = redis.call('HGET', q .. ':dead_payloads', version)
    remove_letter(version)
    revive(row, payload, 'redriven', {job = tonumber(a.job)})
    revived[#revived + 1] = row.version
    revived[#revived + 1] = row.key
  end
end
local reply = {a.chosen or '', revived}  -- what this step chose: a process that repeats it may see fewer letters
if a.job then return keep_step(a.job, reply) end
return done(reply)

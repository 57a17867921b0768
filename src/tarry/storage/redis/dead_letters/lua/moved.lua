-- Delete dead letters that the target of a redrive has received. Repeated, it finds none of them.
-- include: lua/_revive
for _, version in ipairs(a.versions) do
  local packed = redis.call('HGET', q .. ':letters', version)
  if packed then
    note('discarded', letter_of(packed), {detail = {redriven_to = a.target, job = tonumber(a.job)}})
    remove_letter(version)
  end
end
return done(1)

-- A page of the audit log, newest first: id, time, row, and how it ended.
local a = cmsgpack.unpack(ARGV[1])
local audits = KEYS[1] .. ':audits'
local last = (a.before or tonumber(redis.call('GET', KEYS[1] .. ':last_audit') or 0) + 1) - 1
local rows = {}
for id = last, math.max(last - a.limit + 1, 1), -1 do
  local packed = redis.call('HGET', audits, string.format('%.0f', id))
  if packed then
    local row = cmsgpack.unpack(packed)
    rows[#rows + 1] = {id, row[1], row[2], row[3] or ''}
  end
end
return {math.max(last - a.limit + 1, 1), rows}

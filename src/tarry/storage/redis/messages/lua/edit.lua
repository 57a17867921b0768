#!lua
-- Store a new version with other values. A lease on the old version is lost immediately, because its token is gone from the row.
-- If the message has these values already, nothing changes, and its lease stays.
-- include: lua/_edit
local row = row_of(a.key)
if not row then return done('gone') end
local set = a.set
if a.with_due then set.due_at = a.due_at or num(now + a.after) end
local options, more, same = {}, row.more or {}, true
for name, value in pairs(options_of(row)) do options[name] = value end
local holders = {priority = row, due_at = row, trace = more}
for _, name in ipairs(a.named) do
  if (holders[name] or options)[name] ~= set[name] then same = false end
end
if a.with_payload and redis.call('HGET', q .. ':payloads', row.key) ~= ARGV[2] then same = false end
if same then return done('ignored') end
local problem = refused(row)
if problem then return done(problem) end
unplace(row)
for _, name in ipairs(a.named) do (holders[name] or options)[name] = set[name] end
row.options, row.more = pack_options(options), more
if a.with_due then row.planned_at, more.due_limit = row.due_at, nil end
if a.with_payload then
  redis.call('HSET', q .. ':payloads', row.key, ARGV[2])
  row.hash, row.size = a.hash, #ARGV[2]
end
if not is_free(row) then row.attempt = row.attempt - 1 end
row.version, more.expired_at = num(next_of('version')), nil
end_lease(row)
wait(row)
note('edited', row, {detail = {fields = a.fields}}, store(row))
return done('updated')

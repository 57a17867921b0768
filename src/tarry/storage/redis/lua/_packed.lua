-- A message row as one string, in the layout that `rows.py` reads. First the fields that events have, too: version, lease, size,
-- attempt, priority, hash, due time, consumer. Then the planned time (empty: the due time), the creation time, the token, rare
-- fields (as a table), and the options, which most messages share. Without a lease the lease times are 0.
-- include: lua/_layout

local function pack_options(o)
  return cmsgpack.pack({
    o.content_type or false, o.type or false, o.headers or false, o.lease_for or false, o.max_attempts or false,
    o.retry or false,
  })
end

local known = {}
local function options_of(row)
  local options = known[row.options]
  if not options then
    local v = cmsgpack.unpack(row.options)
    options = {
      content_type = v[1] or nil, type = v[2] or nil, headers = v[3] or nil, lease_for = v[4] or nil,
      max_attempts = v[5] or nil, retry = v[6] or nil,
    }
    known[row.options] = options
  end
  return options
end

local function pack(row)
  local due, planned = row.due_at, row.planned_at
  if planned == due then planned = '' end
  local more = row.more and next(row.more) and cmsgpack.pack(row.more) or ''
  return struct.pack(layout, row.version, row.leased_at, row.lease_until, row.size, row.attempt, row.priority, row.hash,
    #due, due, #row.consumer, row.consumer, #planned, planned, row.created_at, row.token or no_token, #more, more,
    #row.options, row.options)
end

local function unpacked(key, packed)
  local version, leased_at, lease_until, size, attempt, priority, hash, due, consumer, planned, created_at, token, more, options =
    struct.unpack(layout, packed)
  return {
    key = key, version = version, leased_at = leased_at, lease_until = lease_until, size = size, attempt = attempt,
    priority = priority, hash = hash, due_at = due, consumer = consumer, planned_at = planned == '' and due or planned,
    created_at = created_at, token = lease_until > 0 and token or nil, more = more ~= '' and cmsgpack.unpack(more) or nil,
    options = options, packed = packed,
  }
end

local function letter_of(packed)
  local row = unpacked('', packed)
  row.key = row.more.key
  return row
end

-- The releases of the user's program, by consumer, with the times of their first and last reports.
local rows = {}
for _, packed in ipairs(redis.call('HVALS', KEYS[1] .. ':releases')) do rows[#rows + 1] = cmsgpack.unpack(packed) end
return rows

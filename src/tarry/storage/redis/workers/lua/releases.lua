-- When consumers ran the releases of the user's program.
local rows = {}
for _, packed in ipairs(redis.call('HVALS', KEYS[1] .. ':releases')) do rows[#rows + 1] = cmsgpack.unpack(packed) end
return rows

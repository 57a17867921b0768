-- Storage constants: the row layout (see `_packed.lua`), the layout of a queue's counters (last version, last event id, and
-- events since the last mark, in one field because each field costs time), and the approximate number of events between marks.
local layout, no_token = '<c16ddIIBc16Bc0Hc0Bc0dc32Ic0Ic0', '00000000000000000000000000000000'
local counters, no_counters = '<ddd', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local marked_every = 1000

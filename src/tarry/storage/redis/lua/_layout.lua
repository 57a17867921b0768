-- Constants of what is stored: the layout of a row (see `_packed.lua`), that of a queue's counters (its last version, its last event,
-- and the events since the last mark: in one field, because each field costs), and how many events lie between marks, about.
local layout, no_token = '<c16ddIIBc16Bc0Hc0Bc0dc32Ic0Ic0', '00000000000000000000000000000000'
local counters, no_counters = '<ddd', '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local marked_every = 1000

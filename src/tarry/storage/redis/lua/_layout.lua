-- Constants of what is stored: the layout of a row (see `_packed.lua`), and about how many events of a journal lie between marks.
local layout, no_token = '<c16ddIIBc16Bc0Hc0Bc0dc32Ic0Ic0', '00000000000000000000000000000000'
local marked_every = 1000

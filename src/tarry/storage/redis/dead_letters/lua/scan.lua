-- A page of dead letters by time of death and version, from a position on, oldest or newest first; payloads only if wanted.
-- Bounded: the position is found by bisection of those that died at the same time, and at most `part` letters are read.
-- include: lua/_queue
local set, total = q .. ':dead', redis.call('ZCARD', q .. ':dead')

-- How many letters are before the position, or at it where `inclusive`.
local function rank_of(died, version, inclusive)
  local at = num(died)
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. at)
  local high = low + redis.call('ZCOUNT', set, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local other = tonumber(redis.call('ZRANGE', set, middle, middle)[1])
    if other < version or (inclusive and other == version) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local first, last
if a.newest_first then
  last = a.died and rank_of(a.died, a.version, false) - 1 or total - 1
  first = math.max(last - a.part + 1, 0)
else
  first = a.died and rank_of(a.died, a.version, true) or 0
  last = math.min(first + a.part, total) - 1
end
local letters = {}
if first <= last then
  local versions = redis.call('ZRANGE', set, first, last)
  for i = 1, #versions do
    local version = versions[a.newest_first and #versions + 1 - i or i]
    local packed = redis.call('HGET', q .. ':letters', version)
    letters[#letters + 1] = packed
    letters[#letters + 1] = a.payloads and redis.call('HGET', q .. ':dead_payloads', version) or ''
    letters[#letters + 1] = redis.call('HEXISTS', q .. ':rows', cmsgpack.unpack(packed).key)
  end
end
return letters

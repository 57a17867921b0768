-- A page of dead letters by time of death and version, from a position on, oldest or newest first; payloads only if wanted.
-- Bounded: the position is found by bisection of those that died at the same time, and at most `part` letters are read.
-- include: lua/_queue
-- include: lua/_packed
-- include: lua/_ranks
local set, total = q .. ':dead', redis.call('ZCARD', q .. ':dead')

local first, last
if a.newest_first then
  last = a.died and rank_after(set, a.died, a.version - 1) - 1 or total - 1
  first = math.max(last - a.part + 1, 0)
else
  first = a.died and rank_after(set, a.died, a.version) or 0
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
    letters[#letters + 1] = redis.call('HEXISTS', q .. ':rows', letter_of(packed).key)
  end
end
return letters

-- The rank of the first member after a position in a sorted set, by bisection of the members with the same score.
local function version_of(member) return tonumber(string.sub(member, 1, 16)) end

local function rank_after(set, score, version)
  if not score then return 0 end
  local at = num(score)
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. at)
  local high = low + redis.call('ZCOUNT', set, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if version_of(redis.call('ZRANGE', set, middle, middle)[1]) > version then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

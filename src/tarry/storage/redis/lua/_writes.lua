-- Writes of a script, gathered by key and sent in few commands, because a command costs several times the write of one message.
-- The writes of one key stay in order. A script that reads a sorted set that it may have changed calls `write` first.

-- Instants and versions are microseconds: whole numbers that a double holds exactly until the year 2255.
local function num(n) return string.format('%d', n) end

-- Versions and ids of events grow with the server's clock, also if the queue is deleted and made again.
local is_counted = false
local function next_of(counter, n)
  local value = math.max(queue[counter] + 1, real) + (n or 1) - 1
  queue[counter], is_counted = value, true
  return value
end

local gathered = {}
local function later(command, key, x, y)
  local writes = gathered[key]
  local n = writes and writes.n
  if not writes or writes[1] ~= command or n > 2000 then
    if writes then redis.call(unpack(writes, 1, n)) end
    gathered[key] = {command, key, x, y, n = y and 4 or 3}
  else
    writes[n + 1], writes[n + 2] = x, y
    writes.n = y and n + 2 or n + 1
  end
end

local write_events = nil  -- `_journal.lua` has it
local function write()
  if write_events then write_events() end
  for _, writes in pairs(gathered) do redis.call(unpack(writes, 1, writes.n)) end
  gathered = {}
  if not is_counted then return end
  redis.call('HSET', q, 'counters', struct.pack(counters, queue.version, queue.event, queue.unmarked))
  is_counted = false
end

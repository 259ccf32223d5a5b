-- What every script begins with. `scripts.py` writes three tables before it: STEP is the name of the script, KEY has its
-- fixed keys by name, and CONSTANT the numbers and texts that Python and Lua share.
--
-- All keys are of one partition; a script touches no others. ARGV[1] is the time in seconds since the epoch. It is empty
-- outside of tests: then the time is that of Redis, the one clock that all processes share.
--
-- Functions are kept in tables, one for each file: a script makes its functions anew at each call, and a function that
-- refers to many locals is slow to make. Tables are written with every field they will have: a table that grows field
-- by field is copied at each doubling, which took half of the time.

local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local NEVER = math.huge
local Prelude = {}

function Prelude.wall_time()
  local given = tonumber(ARGV[1])
  if given then return given end
  local time = call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end

-- The time as one that never goes back. `last` and `offset` are what the step before has kept: if the clock was set
-- back since, the offset grows. Returns the time, the offset, and the time of the clock.
function Prelude.steady_time(last, offset)
  local wall = Prelude.wall_time()
  last, offset = tonumber(last or 0), tonumber(offset or 0)
  if wall + offset < last then offset = last - wall end
  return wall + offset, offset, wall
end

-- When memory is full, Redis refuses the first write of a script if it takes memory; after a write that takes none, all
-- writes are allowed. So a step that frees memory in the end begins with such a write, and a step that must fail as a
-- whole begins with one that takes memory.
function Prelude.work_when_full() call('HDEL', KEY.meta, 'none') end
function Prelude.fail_when_full() call('HSET', KEY.meta, 'none', 0) end

-- Sequence numbers have 14 digits from the first on: their texts sort as they do.
Prelude.FIRST_NUMBER, Prelude.DIGITS = 1e13, 14

-- A number as text that reads back as the same number. `redis.call` does as much with numbers by itself.
function Prelude.exact(number) return string.format('%.17g', number) end

-- Lua cannot pass many arguments at once: a thousand in each command.
function Prelude.call_many(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

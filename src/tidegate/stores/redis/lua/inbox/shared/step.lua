-- How every step begins and ends: the keys, the time, the texts under which arrivals are known, and what is told to
-- the processes that wait.
--
-- ARGV[1] is the time (empty: Redis's own, which is what processes with different clocks share), ARGV[2] the process.
-- The keys are the same for each step; what differs from call to call (`seen`, the name of a lease) comes after them.

local KEY = {}
local FIXED = {
  'outbox', 'meta', 'bodies', 'queue', 'ready', 'suspects', 'later', 'leases', 'held', 'tries',
  'parked', 'letters', 'letters_of', 'reasons', 'channel',
}
for i, name in ipairs(FIXED) do KEY[name] = KEYS[i] end

local call = redis.call
local Step = { news = {} }

function Step.seconds(time)
  return string.format('%.6f', time)
end

-- A write that Redis allows even when its memory is full: after it, the others of this script are allowed too.
-- Only `accept` begins with one that is not allowed then: it is what must fail. Handling goes on, and makes room.
if STEP == 'accept' then call('HSET', KEY.meta, 'none', 0) else call('HDEL', KEY.meta, 'none') end

do
  -- Read once: it is the same instant for the whole step. If Redis's clock was set back, time goes on all the same.
  local meta = call('HMGET', KEY.meta, 'last', 'offset')
  local wall, last, offset = tonumber(ARGV[1]), tonumber(meta[1] or 0), tonumber(meta[2] or 0)
  if wall == nil then
    local time = call('TIME')
    wall = tonumber(time[1]) + tonumber(time[2]) / 1e6
  end
  if wall + offset < last then offset = last - wall end
  Step.wall, Step.time = wall, wall + offset
  -- Whoever runs asks every second: after a silence it was Redis that could not be reached, and nobody could renew.
  if last > 0 and Step.time - last > 4 then call('HSET', KEY.meta, 'woke', Step.seconds(Step.time)) end
  call('HSET', KEY.meta, 'last', Step.seconds(Step.time), 'offset', Step.seconds(offset))
end

-- Numbers have as many digits from the first to the last: so their texts have their order.
local FIRST_NUMBER, DIGITS = 1e13, 14

function Step.next_number()
  return string.format('%.0f', FIRST_NUMBER + call('HINCRBY', KEY.meta, 'numbers', 1))
end

-- Arguments in thousands: Lua cannot pass more at once.
function Step.call_many(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- The end of every step that may have freed a lane: whoever handles what these sources send is woken.
function Step.tell()
  local sources = {}
  for source in pairs(Step.news) do sources[#sources + 1] = source end
  if #sources > 0 then call('PUBLISH', KEY.channel, ARGV[2] .. '\n' .. table.concat(sources, '\n')) end
end

-- Accept: each group of arrivals is taken in as a whole, or not at all if more than ARGV[3] would wait. One that was
-- accepted before, by whichever process, is told so and stored no more. Fails, and changes nothing, if memory is full.
--
-- ARGV[4], ARGV[5]: the sizes of the groups, a list; seconds for which one is known again. Then four for each arrival:
-- its line (source and lane), its body, which of the keys beyond the fixed ones knows it, and its place in there: a bit,
-- or empty if the key is of this one alone. Replies per group: nothing if there is no room, else 1 or 0 for each.

local most, known_for = tonumber(ARGV[3]), tonumber(ARGV[5])
local waiting = call('ZCARD', KEY.queue) - call('HLEN', KEY.held)
local refreshed = {}

local function key_of(at)
  return KEYS[#FIXED + tonumber(ARGV[at + 2])], ARGV[at + 3]
end

local function is_known(at)
  local key, bit = key_of(at)
  -- Until when it is known is said by what is written, as all times are; Redis only clears it away in the end.
  if bit == '' then return tonumber(call('GET', key) or 0) > Step.time end
  return call('GETBIT', key, bit) == 1
end

local function remember(at)
  local key, bit = key_of(at)
  if bit == '' then
    call('SET', key, Step.seconds(Step.time + known_for), 'EX', known_for)
  else
    call('SETBIT', key, bit, 1)
    if not refreshed[key] then call('EXPIRE', key, known_for) end
    refreshed[key] = true
  end
end

-- Only near the end of the room is it worth to count before anything is written.
local function has_room(first, size)
  if waiting + size <= most then return true end
  local fresh, told = 0, {}
  for at = first, first + 4 * (size - 1), 4 do
    local name = ARGV[at + 2] .. ' ' .. ARGV[at + 3]
    if not told[name] and not is_known(at) then fresh = fresh + 1 end
    told[name] = true
  end
  return waiting + fresh <= most
end

local function take_in(at)
  if is_known(at) then return 0 end
  remember(at)
  local number = Step.next_number()
  call('HSET', KEY.bodies, number, ARGV[at + 1])
  Lane.join(ARGV[at], number)
  waiting = waiting + 1
  return 1
end

local replies, at = {}, 6
for size in string.gmatch(ARGV[4], '%d+') do
  local reply = {}
  if has_room(at, tonumber(size)) then
    for i = 1, tonumber(size) do reply[i] = take_in(at + 4 * (i - 1)) end
  end
  replies[#replies + 1] = reply
  at = at + 4 * tonumber(size)
end
Step.tell()
return replies

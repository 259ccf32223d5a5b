-- Accept: each group of updates is stored as a whole, or not at all if more than ARGV[3] would wait. One that was
-- accepted before, by any process, is reported so and not stored again. Fails, and changes nothing, if memory is full.
--
-- ARGV[4]: the sizes of the groups, a list; ARGV[5]: seconds for which an update is known again. Then four for each: its
-- lane prefix, its body, which of the keys beyond the fixed ones knows it, and its bit in that key (empty: the key is of
-- this update alone). Replies for each group: an empty list if there is no room, else 1 (new) or 0 for each update.

local most, known_for = tonumber(ARGV[3]), tonumber(ARGV[5])
local waiting = call('ZCARD', KEY.queue) - call('HLEN', KEY.held)
local refreshed = {}

local function key_of(at)
  return KEYS[FIXED + tonumber(ARGV[at + 2])], ARGV[at + 3]
end

local function is_known(at)
  local key, bit = key_of(at)
  -- The written time decides until when it is known; Redis's own expiry only clears it away later.
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

-- Counting before anything is written is worth it only when little room is left.
local function has_room(first, size)
  if waiting + size <= most then return true end
  local fresh, counted = 0, {}
  for at = first, first + 4 * (size - 1), 4 do
    local name = ARGV[at + 2] .. ' ' .. ARGV[at + 3]
    if not counted[name] and not is_known(at) then fresh = fresh + 1 end
    counted[name] = true
  end
  return waiting + fresh <= most
end

local function store(at)
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
    for i = 1, tonumber(size) do reply[i] = store(at + 4 * (i - 1)) end
  end
  replies[#replies + 1] = reply
  at = at + 4 * tonumber(size)
end
Step.publish()
return replies

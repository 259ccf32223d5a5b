-- Accept: each group of updates is stored as a whole, or not at all if more than ARGV[3] of a source would wait. One that
-- was accepted before, by any process, is reported so and not stored again. Fails, and changes nothing, if memory is full.
--
-- ARGV[4]: the sizes of the groups, a list; ARGV[5]: seconds for which an update is known again. Then four for each: its
-- lane prefix, its body, which of the keys beyond the fixed ones knows it, and its bit in that key (empty: the key is of
-- this update alone). Replies for each group: an empty list if there is no room, else 1 (new) or 0 for each update.

local most, known_for = tonumber(ARGV[3]), tonumber(ARGV[5])
local refreshed = {}
local queued, held = {}, nil -- how many of each source

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

local function queued_of(source)
  queued[source] = queued[source] or Lane.count(source)
  return queued[source]
end

local function held_of(source)
  held = held or Lane.held_by_source()
  return held[source] or 0
end

-- Counting exactly is worth it only when little room is left.
local function has_room(first, size)
  local given, fresh, counted = {}, {}, {}
  local last, tight = first + 4 * (size - 1), false
  for at = first, last, 4 do
    local source = Lane.source(ARGV[at])
    given[source] = (given[source] or 0) + 1
    tight = tight or queued_of(source) + given[source] > most
  end
  if not tight then return true end
  for at = first, last, 4 do
    local name, source = ARGV[at + 2] .. ' ' .. ARGV[at + 3], Lane.source(ARGV[at])
    if not counted[name] and not is_known(at) then fresh[source] = (fresh[source] or 0) + 1 end
    counted[name] = true
  end
  for source, count in pairs(fresh) do
    if queued_of(source) - held_of(source) + count > most then return false end
  end
  return true
end

local function store(at)
  if is_known(at) then return 0 end
  remember(at)
  local number = Step.next_number()
  call('HSET', KEY.bodies, number, ARGV[at + 1])
  local source = Lane.source(ARGV[at])
  local before = queued_of(source)
  Lane.join(ARGV[at], number)
  queued[source] = before + 1
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

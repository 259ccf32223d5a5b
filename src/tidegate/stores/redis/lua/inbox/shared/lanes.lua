-- Lanes: `queue` holds every update that waits or is held. The first of each lane is in exactly one more set: `ready` or
-- `suspects` (it may be claimed), `later` (it waits for its next try) or `leases` (it is held).
--
-- A place in the queue is a text: source, lane and number, separated by zero bytes. So the places of a lane stand
-- together, in order, in one key for all lanes; and in `ready`, with the number before the lane, those of a source.

local Lane = {}

function Lane.number(place)
  return string.sub(place, -Prelude.DIGITS)
end

function Lane.source(place)
  return string.match(place, '^[^%z]*')
end

-- A place without its number: source and lane, each with its zero byte.
function Lane.prefix(place)
  return string.sub(place, 1, -Prelude.DIGITS - 1)
end

-- A place as it stands in `ready`, and back.
function Lane.offer_of(place)
  local source, lane = string.match(place, '^([^%z]*)%z(.*)%z%d+$')
  return source .. '\0' .. Lane.number(place) .. '\0' .. lane
end

function Lane.place_of(offer)
  local source, number, lane = string.match(offer, '^([^%z]*)%z(%d+)%z(.*)$')
  return source .. '\0' .. lane .. '\0' .. number
end

-- The first place of a lane, or nil.
function Lane.first(prefix)
  return call('ZRANGEBYLEX', KEY.queue, '[' .. prefix, '(' .. prefix .. ':', 'LIMIT', 0, 1)[1]
end

-- How many of a source wait or are held.
function Lane.count(source)
  return call('ZLEXCOUNT', KEY.queue, '[' .. source .. '\0', '(' .. source .. '\1')
end

-- How many of each source are held. Reads all leases: they are few.
function Lane.held_by_source()
  local held = {}
  for _, place in ipairs(call('ZRANGE', KEY.leases, 0, -1)) do
    local source = Lane.source(place)
    held[source] = (held[source] or 0) + 1
  end
  return held
end

-- Failed attempts, and crashes.
function Lane.tries(number)
  local attempts, crashes = string.match(call('HGET', KEY.tries, number) or '0 0', '^(%d+) (%d+)$')
  return tonumber(attempts), tonumber(crashes)
end

function Lane.offer(place, crashes)
  call('ZADD', crashes >= CONSTANT.SUSPECT_CRASHES and KEY.suspects or KEY.ready, 0, Lane.offer_of(place))
  Step.sources[Lane.source(place)] = true
end

function Lane.is_held(place, token)
  return call('HGET', KEY.held, Lane.number(place)) == token
end

function Lane.lease(place)
  call('ZADD', KEY.leases, Step.seconds(Step.time + CONSTANT.LEASE_SECONDS), place)
end

function Lane.let_go(place)
  call('HDEL', KEY.held, Lane.number(place))
  call('ZREM', KEY.leases, place)
end

-- A held update goes back to the head of its lane: at once, or after so many seconds.
function Lane.back(place, attempts, crashes, after)
  Lane.let_go(place)
  if attempts + crashes > 0 then call('HSET', KEY.tries, Lane.number(place), attempts .. ' ' .. crashes) end
  if after > 0 then
    call('ZADD', KEY.later, Step.seconds(Step.time + after), place)
  else
    Lane.offer(place, crashes)
  end
end

-- A held update is over: the next of its lane, which nobody has tried yet, may be claimed.
function Lane.leave(place)
  Lane.let_go(place)
  call('HDEL', KEY.tries, Lane.number(place))
  call('ZREM', KEY.queue, place)
  local following = Lane.first(Lane.prefix(place))
  if following then Lane.offer(following, 0) end
end

-- To the end of its lane.
function Lane.join(prefix, number)
  local alone = Lane.first(prefix) == nil
  call('ZADD', KEY.queue, 0, prefix .. number)
  if alone then Lane.offer(prefix .. number, 0) end
end

-- Parked updates: given up, and kept until an operator decides. Each is known by its source and key (`parked`), and
-- stands in the order of parking among all (`letters`) and among those of its source (`letters_of`). Its body stays
-- where it was.

local Parked = {}

-- The member of both orders: source, number of the parking, number of the update, key.
function Parked.name(source, parked, number, key)
  return source .. '\0' .. parked .. '\0' .. number .. '\0' .. key
end

function Parked.number(name)
  return string.match(name, '^[^%z]*%z%d+%z(%d+)')
end

-- The name of the parked update with this key, and its former place in the queue; or nil.
function Parked.find(source, key)
  local known = call('HGET', KEY.parked, source .. '\0' .. key)
  if not known then return nil end
  local parked, place = string.sub(known, 1, Prelude.DIGITS), string.sub(known, Prelude.DIGITS + 1)
  return Parked.name(source, parked, Lane.number(place), key), place
end

-- Removes a parked update, if there is one; returns its former place in the queue, and its body.
function Parked.take(source, key)
  local name, place = Parked.find(source, key)
  if not name then return nil end
  local number = Lane.number(place)
  local body = call('HGET', KEY.bodies, number)
  call('HDEL', KEY.parked, source .. '\0' .. key)
  call('HDEL', KEY.reasons, number)
  call('HDEL', KEY.bodies, number)
  call('ZREM', KEY.letters, name)
  call('ZREM', KEY.letters_of, name)
  return place, body
end

function Parked.add(place, key, reason)
  local source, number, parked = Lane.source(place), Lane.number(place), Step.next_number()
  Parked.take(source, key) -- one of the same name, from long ago
  local name = Parked.name(source, parked, number, key)
  call('HSET', KEY.parked, source .. '\0' .. key, parked .. place)
  call('HSET', KEY.reasons, number, reason)
  call('ZADD', KEY.letters, parked, name)
  call('ZADD', KEY.letters_of, 0, name)
end

-- Forgets the oldest of a source beyond the limit, a hundred at most.
function Parked.trim(source, limit)
  local from, to = '[' .. source .. '\0', '(' .. source .. '\1'
  local over = call('ZLEXCOUNT', KEY.letters_of, from, to) - limit
  if over <= 0 then return end
  for _, name in ipairs(call('ZRANGEBYLEX', KEY.letters_of, from, to, 'LIMIT', 0, math.min(over, 100))) do
    Parked.take(source, string.match(name, '^[^%z]*%z%d+%z%d+%z(.*)$'))
  end
end

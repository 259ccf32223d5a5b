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

-- Removes a parked update, if there is one; returns its former place in the queue, and its body.
function Parked.take(source, key)
  local known = call('HGET', KEY.parked, source .. '\0' .. key)
  if not known then return nil end
  local parked, place = string.sub(known, 1, Prelude.DIGITS), string.sub(known, Prelude.DIGITS + 1)
  local number = Lane.number(place)
  local name, body = Parked.name(source, parked, number, key), call('HGET', KEY.bodies, number)
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

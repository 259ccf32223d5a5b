-- Letters: those that were given up. Each is known by its source and key (`parked`), and stands in the order in which
-- they were parked: among all (`letters`) and among those of its source (`letters_of`). Its body stays where it was.

local Letter = {}

-- Under which it stands in both orders: source, when it was parked, its number, its key.
function Letter.name(source, parked, number, key)
  return source .. '\0' .. parked .. '\0' .. number .. '\0' .. key
end

function Letter.number(name)
  return string.match(name, '^[^%z]*%z%d+%z(%d+)')
end

-- It is no letter any more, if it was one; returns its place in the queue before, and its body.
function Letter.take(source, key)
  local known = call('HGET', KEY.parked, source .. '\0' .. key)
  if not known then return nil end
  local parked, place = string.sub(known, 1, DIGITS), string.sub(known, DIGITS + 1)
  local number = Lane.number(place)
  local name, body = Letter.name(source, parked, number, key), call('HGET', KEY.bodies, number)
  call('HDEL', KEY.parked, source .. '\0' .. key)
  call('HDEL', KEY.reasons, number)
  call('HDEL', KEY.bodies, number)
  call('ZREM', KEY.letters, name)
  call('ZREM', KEY.letters_of, name)
  return place, body
end

function Letter.add(place, key, reason)
  local source, number, parked = Lane.source(place), Lane.number(place), Step.next_number()
  Letter.take(source, key) -- of the same name, from long ago
  local name = Letter.name(source, parked, number, key)
  call('HSET', KEY.parked, source .. '\0' .. key, parked .. place)
  call('HSET', KEY.reasons, number, reason)
  call('ZADD', KEY.letters, parked, name)
  call('ZADD', KEY.letters_of, 0, name)
end

-- Of a source, the oldest beyond so many are forgotten.
function Letter.trim(source, most)
  local from, to = '[' .. source .. '\0', '(' .. source .. '\1'
  local over = call('ZLEXCOUNT', KEY.letters_of, from, to) - most
  if over <= 0 then return end
  for _, name in ipairs(call('ZRANGEBYLEX', KEY.letters_of, from, to, 'LIMIT', 0, math.min(over, 100))) do
    Letter.take(source, string.match(name, '^[^%z]*%z%d+%z%d+%z(.*)$'))
  end
end

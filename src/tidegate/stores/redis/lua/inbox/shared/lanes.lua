-- Lanes: in `queue` stands all that waits or is held. The first of each lane is in exactly one more place: `ready` or
-- `suspects` (it may be claimed), `later` (it waits for its next try) or `leases` (it is held).
--
-- A place in the queue is a text: source, lane and number, parted by zero bytes. So those of a lane stand together, in
-- order, in one key for all lanes; and in `ready`, with the number before the lane, those of a source.

local Lane = { SUSPECT = 2, LEASE = 8 } -- crashes; seconds

function Lane.number(place)
  return string.sub(place, -DIGITS)
end

function Lane.source(place)
  return string.match(place, '^[^%z]*')
end

-- As it stands in `ready`, and back.
function Lane.offer_of(place)
  local source, lane = string.match(place, '^([^%z]*)%z(.*)%z%d+$')
  return source .. '\0' .. Lane.number(place) .. '\0' .. lane
end

function Lane.place_of(offer)
  local source, number, lane = string.match(offer, '^([^%z]*)%z(%d+)%z(.*)$')
  return source .. '\0' .. lane .. '\0' .. number
end

-- The place of the first one, or nil. `line`: source and lane, each with its zero byte.
function Lane.first(line)
  return call('ZRANGEBYLEX', KEY.queue, '[' .. line, '(' .. line .. ':', 'LIMIT', 0, 1)[1]
end

-- Attempts that failed, crashes.
function Lane.tries(number)
  local attempts, crashes = string.match(call('HGET', KEY.tries, number) or '0 0', '^(%d+) (%d+)$')
  return tonumber(attempts), tonumber(crashes)
end

function Lane.offer(place, crashes)
  call('ZADD', crashes >= Lane.SUSPECT and KEY.suspects or KEY.ready, 0, Lane.offer_of(place))
  Step.news[Lane.source(place)] = true
end

function Lane.is_held(place, token)
  return call('HGET', KEY.held, Lane.number(place)) == token
end

function Lane.let_go(place)
  call('HDEL', KEY.held, Lane.number(place))
  call('ZREM', KEY.leases, place)
end

-- What was held goes back to the head of its lane: at once, or after so many seconds.
function Lane.back(place, attempts, crashes, after)
  Lane.let_go(place)
  if attempts + crashes > 0 then call('HSET', KEY.tries, Lane.number(place), attempts .. ' ' .. crashes) end
  if after > 0 then
    call('ZADD', KEY.later, Step.seconds(Step.time + after), place)
  else
    Lane.offer(place, crashes)
  end
end

-- What was held is over: the next of its lane may be claimed, which nobody has tried yet.
function Lane.leave(place)
  Lane.let_go(place)
  call('HDEL', KEY.tries, Lane.number(place))
  call('ZREM', KEY.queue, place)
  local following = Lane.first(string.sub(place, 1, -DIGITS - 1))
  if following then Lane.offer(following, 0) end
end

-- At the end of its lane.
function Lane.join(line, number)
  local alone = Lane.first(line) == nil
  call('ZADD', KEY.queue, 0, line .. number)
  if alone then Lane.offer(line .. number, 0) end
end

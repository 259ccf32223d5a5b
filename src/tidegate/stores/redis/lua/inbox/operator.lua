-- What operators ask and do: parked updates, and how many there are of each kind.

-- Parked: up to ARGV[4] parked updates, the newest first, of one source (ARGV[3]) or of all (empty). Replies the body,
-- when and why it was parked, and its name, of each.
function Steps.parked()
  local names
  if ARGV[3] == '' then
    names = call('ZREVRANGE', KEY.letters, 0, tonumber(ARGV[4]) - 1)
  else
    local from, to = '[' .. ARGV[3] .. '\0', '(' .. ARGV[3] .. '\1'
    names = call('ZREVRANGEBYLEX', KEY.letters_of, to, from, 'LIMIT', 0, ARGV[4])
  end
  local found = {}
  for _, name in ipairs(names) do
    local number = Parked.number(name)
    local body, reason = call('HGET', KEY.bodies, number), call('HGET', KEY.reasons, number)
    if body and reason then found[#found + 1] = { body, reason, name } end
  end
  return found
end

-- Parked one: the same of one parked update (ARGV[3], ARGV[4]: source and key), or nothing.
function Steps.parked_one()
  local name = Parked.find(ARGV[3], ARGV[4])
  if not name then return {} end
  local number = Parked.number(name)
  return { call('HGET', KEY.bodies, number) or '', call('HGET', KEY.reasons, number) or '', name }
end

-- Replay: a parked update (ARGV[3], ARGV[4]: source and key) waits again, at the end of its lane, as if nobody had tried
-- it. Replies whether there was one.
function Steps.replay()
  local place, body = Parked.take(ARGV[3], ARGV[4])
  if not body then return 0 end
  local number = Step.next_number()
  call('HSET', KEY.bodies, number, body)
  Lane.join(Lane.prefix(place), number)
  Step.publish()
  return 1
end

-- Drop: a parked update (ARGV[3], ARGV[4]: source and key) is forgotten. Replies whether there was one.
function Steps.drop()
  return Parked.take(ARGV[3], ARGV[4]) and 1 or 0
end

-- Bring: parked updates of another store are parked here, in this order, as they were there. One whose key is parked
-- stays as it is. ARGV[3]: how many of a source are kept. Then four for each: lane prefix, key, body, when and why.
-- Replies how many are new.
function Steps.bring()
  local brought = 0
  for i = 4, #ARGV, 4 do
    local source = Lane.source(ARGV[i])
    if not Parked.find(source, ARGV[i + 1]) then
      local number = Step.next_number()
      call('HSET', KEY.bodies, number, ARGV[i + 2])
      Parked.add(ARGV[i] .. number, ARGV[i + 1], ARGV[i + 3])
      Parked.trim(source, tonumber(ARGV[3]))
      brought = brought + 1
    end
  end
  return brought
end

-- Erase: up to ARGV[5] updates of a chat (ARGV[3], ARGV[4]: source and chat), in its lane and in those of its users, that
-- wait are forgotten; those that are held stay. Their keys stay known: Telegram may repeat them. Replies how many it were.
function Steps.erase()
  local chat, erased, lanes = ARGV[3] .. '\0' .. ARGV[4], 0, {}
  for _, range in ipairs({ { '\0', '\0:' }, { ' ', '!' } }) do
    local from, to = '[' .. chat .. range[1], '(' .. chat .. range[2]
    for _, place in ipairs(call('ZRANGEBYLEX', KEY.queue, from, to, 'LIMIT', 0, ARGV[5])) do
      local number, offer = Lane.number(place), Lane.offer_of(place)
      if call('HEXISTS', KEY.held, number) == 0 then
        call('ZREM', KEY.queue, place)
        call('ZREM', KEY.later, place)
        call('ZREM', KEY.ready, offer)
        call('ZREM', KEY.suspects, offer)
        call('HDEL', KEY.tries, number)
        call('HDEL', KEY.bodies, number)
        lanes[string.match(place, '^(.*%z)%d+$')] = true
        erased = erased + 1
      end
    end
  end
  for prefix in pairs(lanes) do
    local following = Lane.first(prefix)
    if following and call('HEXISTS', KEY.held, Lane.number(following)) == 0 then Lane.offer(following, 0) end
  end
  Step.publish()
  return erased
end

-- Source after: the first source with updates in the queue after ARGV[3], or nothing.
function Steps.source_after()
  local place = call('ZRANGEBYLEX', KEY.queue, '(' .. ARGV[3] .. '\1', '+', 'LIMIT', 0, 1)[1]
  return place and Lane.source(place) or ''
end

-- Waiting: how many updates of a source (ARGV[3]) wait.
function Steps.waiting()
  return Lane.count(ARGV[3]) - (Lane.held_by_source()[ARGV[3]] or 0)
end

-- Lane length: how many updates of a lane (ARGV[3]: source and lane, each with its zero byte) wait or are held.
function Steps.lane_length()
  return call('ZLEXCOUNT', KEY.queue, '[' .. ARGV[3], '(' .. ARGV[3] .. ':')
end

-- Stats: how many updates wait, are held by any process, and are parked, at one instant.
function Steps.stats()
  local held = call('HLEN', KEY.held)
  return { call('ZCARD', KEY.queue) - held, held, call('HLEN', KEY.parked) }
end

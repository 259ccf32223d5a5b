-- Messages and turns as they are stored, and their changes of state.
--
-- A message is {state, lane, level, cost, seq, token, created, number, body, result} and, where it has some, the RARE
-- fields. A turn has what the schedule needs of that, and its owner.

Message.RARE = {
  'chat', -- the chat as it was put, if its lane has another id by now
  'urgent_as', -- its priority, if it is urgent
  'paid', 'attempts', 'crashes', 'settled', 'reason', 'description', 'retry', 'due', 'expires', 'park', 'dedup',
  'dedup_until', 'coalesce', 'cooled', 'owner',
}

-- There may be millions, each read and written a few times: flat lists are the fastest form in Redis's Lua.
function Message.parse(id, stored)
  local state, lane, level, cost, seq, token, created, number, rare, body, result = unpack_one(stored)
  local message = {
    id = id, state = state, lane = lane, level = level, cost = cost, seq = seq or nil, token = token or nil,
    created = created, number = number, body = body, result = result or nil,
  }
  for name, value in pairs(rare or Store.NOTHING) do message[name] = value end
  return message
end

function Message.text(message)
  local rare = false
  local names = Message.RARE
  for i = 1, #names do
    local value = message[names[i]]
    if value ~= nil then
      rare = rare or {}
      rare[names[i]] = value
    end
  end
  return pack(
    message.state or false, message.lane, message.level, message.cost, message.seq or false, message.token or false,
    message.created or 0, message.number or 0, rare, message.body or '', message.result or false)
end

function Message.chat(message)
  return message.chat or string.match(message.lane, '^%d+/%l+/(.+)$')
end

Message.OPEN = { queued = true, retry = true, sending = true }
Message.DEAD_LETTER = { dead = true, parked = true }
Message.PRIORITY = { [Level.HIGH] = 'high', [Level.NORMAL] = 'normal', [Level.LOW] = 'low' }

function Message.is_turn(id)
  return string.sub(id, 1, #CONSTANT.TURN_PREFIX) == CONSTANT.TURN_PREFIX
end

function Message.load(cache, key, id)
  local kept = cache[id]
  if kept == nil then
    local stored = call('HGET', key, id)
    if not stored then return nil end
    kept = Message.parse(id, stored)
    cache[id] = kept
  end
  return kept or nil -- false if it was dropped in this step
end

-- For reading only: changes to it are not written.
function Message.peek(id)
  local kept = Now.messages[id]
  if kept == nil then
    local stored = call('HGET', KEY.messages, id)
    kept = stored and Message.parse(id, stored)
  end
  return kept or nil
end

function Message.at(id) return Message.load(Now.messages, KEY.messages, id) end
function Message.turn_at(id) return Message.load(Now.turns, KEY.turns, id) end

function Message.entry(id)
  if Message.is_turn(id) then return Message.turn_at(id) end
  return Message.at(id)
end

function Message.save_all(cache, key)
  for id, kept in pairs(cache) do
    if kept then
      Store.later('HSET', key, id, Message.text(kept))
    else
      Store.later('HDEL', key, id)
    end
  end
end

function Message.waits(message)
  return (message.state == 'queued' or message.state == 'retry') and not message.token
end

function Message.counter(message)
  if message.state ~= 'queued' then return message.state end
  return message.urgent_as or Message.PRIORITY[message.level]
end

function Message.change_state(message, state)
  Store.count(Message.counter(message), -1)
  message.state = state
  Store.count(Message.counter(message), 1)
end

function Message.bot(message)
  local lane = Now.lanes[message.lane]
  return lane and lane.bot or string.match(message.lane, '^%d+')
end

-- A message as the caller gets it.
function Message.report(message)
  return {
    id = message.id,
    state = message.state,
    attempts = message.attempts,
    crashes = message.crashes,
    created = message.created - Now.offset,
    settled = message.settled and message.settled - Now.offset,
    reason = message.reason,
    description = message.description,
    body = Store.blob(message.body),
    result = message.result and Store.blob(message.result),
    number = message.number,
  }
end

-- A message ends. It is kept for a while, or for its dedup lifetime if that is longer; dead letters until dropped.
function Message.finish(message, state, reason, description, quietly)
  Message.change_state(message, state)
  message.reason, message.description, message.settled = reason, description, Now.time
  Store.count(CONSTANT.OPEN_COUNT_PREFIX .. Message.bot(message), -1)
  if message.expires then Store.later('ZREM', KEY.timers, 'E' .. message.id) end
  if (message.crashes or 0) >= CONSTANT.SUSPECT_CRASHES then call('HDEL', KEY.crashed, message.id) end
  if message.coalesce and call('HGET', KEY.coalesce, message.coalesce) == message.id then
    call('HDEL', KEY.coalesce, message.coalesce)
  end
  if Message.DEAD_LETTER[state] then
    Store.later('ZADD', KEY.letters, Store.next_number(), message.id)
  else
    Store.later('ZADD', KEY.ended, math.max(Now.time + terms.keep, message.dedup_until or 0), message.id)
  end
  if not quietly then Now.ended[#Now.ended + 1] = message end
end

function Message.forget(message)
  Now.messages[message.id] = false
  if message.dedup then
    local known = call('HGET', KEY.dedup, message.dedup)
    if known and unpack_one(known)[1] == message.id then call('HDEL', KEY.dedup, message.dedup) end
  end
end

-- A call is over: its message goes back to its line, or ends, as `following` says.
function Message.next_state(message, following, quietly)
  message.attempts = following.attempts > 0 and following.attempts or nil
  if following.state ~= 'queued' and following.state ~= 'retry' then
    Message.finish(message, following.state, following.reason, following.description, quietly)
  elseif message.expires and message.expires <= Now.time then -- its deadline passed while it was being sent
    Message.finish(message, 'expired', nil, nil, quietly)
  else
    Message.change_state(message, following.state)
    message.reason, message.description = following.reason, following.description
    Schedule.again(message, following.delay > 0 and Now.time + following.delay or nil)
  end
end

-- Nothing for this chat can succeed: the messages that wait in its lane are dead too, a part of them now and the rest
-- soon. None of them is sent meanwhile.
function Message.kill_lane(lane, reason, description, before)
  local left = Bound.KILL
  lane.bury = { reason, description, before }
  for level = Level.HIGH, Level.URGENT do
    local line = lane.lines[level]
    while line and line.id and line.seq < before and left > 0 do
      local message = Message.at(line.id)
      Line.pop(lane, level, line)
      Schedule.unreserve(lane, level, line, Lane.pool_for(lane, message.paid))
      Message.finish(message, 'dead', reason, description)
      left = left - 1
    end
  end
  if left == 0 then
    Timers.set(Now.time, 'B', lane.key)
  else
    lane.bury = nil
  end
  for level, line in pairs(lane.lines) do Schedule.place(lane, level, line) end
  if not Lane.has_lines(lane) then Lane.rest(lane) end
end

-- The effect of an answer on its chat: it has another id, or nothing for it can succeed.
function Message.apply_to_chat(lane, settlement)
  if settlement.alias then
    Schedule.alias(lane, settlement.alias)
  elseif settlement.whole_chat then
    Message.kill_lane(lane, settlement.reason, settlement.description, Store.next_number())
  end
end

-- The lease ran out: its worker died, and whether the call was made is unknown.
function Message.after_crash(message)
  local lane = Lane.at(message.lane)
  message.crashes = (message.crashes or 0) + 1
  if message.crashes >= CONSTANT.SUSPECT_CRASHES then
    call('HSET', KEY.crashed, message.id, message.crashes)
    Now.suspects = 1
  end
  Schedule.release(message, lane, Now.time, true, false)
  local following = { state = 'queued', attempts = message.attempts or 0, delay = 0, reason = 'crash' }
  if message.crashes >= CONSTANT.CRASHES_ALLOWED then
    following.state, following.reason = 'parked', 'crashes'
    following.description = string.format(CONSTANT.AFTER_CRASHES, message.crashes)
  elseif message.park then
    following.state, following.reason, following.description = 'parked', 'unknown', 'its worker died'
  end
  Message.next_state(message, following)
  Schedule.settle_lane(lane)
end

function Message.lose_turn(turn)
  local lane = Lane.at(turn.lane)
  if turn.token then
    Schedule.release(turn, lane, Now.time, true, false)
  else
    Now.waiting_turns = Now.waiting_turns - 1
    Schedule.remove(turn)
  end
  Now.turns[turn.id] = false
  Schedule.settle_lane(lane)
end

-- Adds a message to its line, now or when it is due.
function Message.add(message)
  if message.expires then Timers.set(message.expires, 'E', message.id) end
  if message.due and message.due > Now.time then
    Timers.set(message.due, 'J', message.number .. ' ' .. message.id) -- those of one instant join in the order of their puts
  else
    Schedule.join(message)
  end
end

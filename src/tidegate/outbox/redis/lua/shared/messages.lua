-- What is kept of each message and of each turn, and what becomes of them.
--
-- A message: {state, body, lane, chat, level, urgent_as (its priority, if it is urgent), cost, paid, seq, token,
-- attempts, crashes, created, settled, reason, description, result, retry, due, expires, park, dedup, dedup_until,
-- coalesce, cooled, number}. What is nil is not stored. A turn has what the schedule needs of that, and its owner.

local messages, turns = {}, {}
local OPEN = { queued = true, retry = true, sending = true }
local LETTER = { dead = true, parked = true }
local PRIORITY = { [HIGH] = 'high', [NORMAL] = 'normal', [LOW] = 'low' }
local ENTRY_OF_TURN = 'turn/'

local function is_turn(id)
  return string.sub(id, 1, #ENTRY_OF_TURN) == ENTRY_OF_TURN
end

local function load(cache, key, id)
  local kept = cache[id]
  if kept == nil then
    local stored = call('HGET', key, id)
    if not stored then return nil end
    kept = unpack_one(stored)
    kept.id = id
    cache[id] = kept
  end
  return kept or nil -- false: it was dropped in this step
end

local function message_at(id) return load(messages, KEY.messages, id) end
local function turn_at(id) return load(turns, KEY.turns, id) end

entry_of = function(id)
  if is_turn(id) then return turn_at(id) end
  return message_at(id)
end

local function save_all(cache, key)
  for id, kept in pairs(cache) do
    if kept then
      kept.id = nil
      later('HSET', key, id, pack(kept))
    else
      later('HDEL', key, id)
    end
  end
end

local function waits(message)
  return (message.state == 'queued' or message.state == 'retry') and not message.token
end

local function counter_of(message)
  if message.state ~= 'queued' then return message.state end
  return message.urgent_as or PRIORITY[message.level]
end

local function change_state(message, state)
  count(counter_of(message), -1)
  message.state = state
  count(counter_of(message), 1)
end

local function bot_of(message)
  return string.match(message.lane, '^[^/]+')
end

-- As the caller gets to know it.
local function told(message)
  return {
    id = message.id,
    state = message.state,
    attempts = message.attempts,
    crashes = message.crashes,
    created = message.created,
    settled = message.settled,
    reason = message.reason,
    description = message.description,
    body = blob(message.body),
    result = message.result and blob(message.result),
    number = message.number,
  }
end

local ended = {} -- in this step, other than by their own settlement: whoever made it tells the application

-- It comes to an end. Kept for a while, or for its dedup lifetime if that is longer; letters until they are dropped.
local function finish(message, state, reason, description, quietly)
  change_state(message, state)
  message.reason, message.description, message.settled = reason, description, now
  count('open:' .. bot_of(message), -1)
  if message.expires then later('ZREM', KEY.timers, 'E' .. message.id) end
  if message.coalesce and call('HGET', KEY.coalesce, message.coalesce) == message.id then
    call('HDEL', KEY.coalesce, message.coalesce)
  end
  if LETTER[state] then
    later('ZADD', KEY.letters, next_number(), message.id)
  else
    later('ZADD', KEY.ended, exact(math.max(now + terms.keep, message.dedup_until or 0)), message.id)
  end
  if not quietly then ended[#ended + 1] = message end
end

local function forget(message)
  messages[message.id] = false
  if message.dedup then
    local known = call('HGET', KEY.dedup, message.dedup)
    if known and unpack_one(known)[1] == message.id then call('HDEL', KEY.dedup, message.dedup) end
  end
end

-- A call is over, whatever the answer: back to its line, or to its end.
local function next_state(message, step, quietly)
  message.attempts = step.attempts > 0 and step.attempts or nil
  if step.state ~= 'queued' and step.state ~= 'retry' then
    finish(message, step.state, step.reason, step.description, quietly)
  elseif message.expires and message.expires <= now then -- its deadline passed while it was being sent
    finish(message, 'expired', nil, nil, quietly)
  else
    change_state(message, step.state)
    message.reason, message.description = step.reason, step.description
    again(message, step.delay > 0 and now + step.delay or nil)
  end
end

-- Nothing for this chat can succeed: what waits in its lane follows, a part of it now and the rest soon.
local function bury(lane, reason, description, before)
  local left = BURY
  for level = HIGH, URGENT do
    local line = lane.lines[level]
    while line and line.id and line.seq < before and left > 0 do
      local message = message_at(line.id)
      pop(lane, level, line)
      unreserve(lane, level, line, pool_for(lane, message.paid))
      finish(message, 'dead', reason, description)
      left = left - 1
    end
    if line then place(lane, level, line) end
  end
  lane.bury = nil
  if left == 0 then
    lane.bury = { reason, description, before }
    set_timer(now, 'B', lane.key)
  elseif not has_lines(lane) then
    rest(lane)
  end
end

-- The lease ran out: whoever held it died, and whether the call was made is unknown.
local function after_crash(message)
  local lane = lane_at(message.lane)
  message.crashes = (message.crashes or 0) + 1
  release(message, lane, now, true, false)
  local step = { state = 'queued', attempts = message.attempts or 0, delay = 0, reason = 'crash' }
  if message.crashes >= terms.crashes then
    step.state, step.reason = 'dead', 'crashes'
    step.description = 'its worker died ' .. message.crashes .. ' times'
  elseif message.park then
    step.state, step.reason, step.description = 'parked', 'unknown', 'its worker died'
  end
  next_state(message, step)
  settle_lane(lane)
end

local function lose_turn(turn)
  local lane = lane_at(turn.lane)
  if turn.token then
    release(turn, lane, now, true, false)
  else
    waiting_turns = waiting_turns - 1
    remove(turn)
  end
  turns[turn.id] = false
  settle_lane(lane)
end

-- To its line, now or when it is due.
local function add(message)
  if message.expires then set_timer(message.expires, 'E', message.id) end
  if message.due and message.due > now then
    set_timer(message.due, 'J', message.id)
  else
    join(message)
  end
end

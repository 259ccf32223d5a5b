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

Message.TYPES = {
  chat = 'string', urgent_as = 'string', paid = 'boolean', attempts = 'number', crashes = 'number', settled = 'number',
  reason = 'string', description = 'string', retry = 'number', due = 'number', expires = 'number', park = 'boolean',
  dedup = 'string', dedup_until = 'number', coalesce = 'string', cooled = 'boolean', owner = 'string',
}
Message.STATES = {
  [false] = true, -- of a turn
  queued = true, retry = true, sending = true, dead = true, parked = true, delivered = true, expired = true,
  cancelled = true, replaced = true,
}

local function is_number_or_false(value) return value == false or type(value) == 'number' end

-- Whether stored values are those of a message: damaged bytes may be unpacked to anything.
function Message.is_sound(state, lane, level, cost, seq, token, created, number, rare, body, result)
  if not Message.STATES[state] or type(lane) ~= 'string' or not string.find(lane, '^%d+/%l+/.') then return false end
  if type(level) ~= 'number' or level < 0 or level > Level.TURN + Level.LOW or level % 1 ~= 0 then return false end
  if type(cost) ~= 'number' or cost < 0 or type(created) ~= 'number' then return false end
  if type(number) ~= 'number' or not (number >= 0 and number < NEVER) then return false end
  if not is_number_or_false(seq) or not is_number_or_false(token) then return false end
  if type(body) ~= 'string' or not (result == false or type(result) == 'string') then return false end
  if rare ~= false then
    if type(rare) ~= 'table' then return false end
    for name, value in pairs(rare) do
      if type(value) ~= Message.TYPES[name] then return false end
    end
  end
  return true
end

-- There may be millions, each read and written a few times: flat lists are the fastest form in Redis's Lua. Returns nil
-- for one that cannot be read.
function Message.parse(id, stored)
  local read, state, lane, level, cost, seq, token, created, number, rare, body, result, counting =
    pcall(unpack_one, stored)
  if not read or not Message.is_sound(state, lane, level, cost, seq, token, created, number, rare, body, result) then
    return nil
  end
  local message = {
    id = id, state = state, lane = lane, level = level, cost = cost, seq = seq or nil, token = token or nil,
    created = created, number = number, body = body, result = result or nil, counting = counting,
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
    message.created or 0, message.number or 0, rare, message.body or '', message.result or false,
    message.counting or false)
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
    if kept == nil then
      cache[id] = false -- while it is looked for
      kept = Message.bury(id, stored)
    elseif kept.counting ~= Now.counting and kept.state then
      Message.adopt(kept)
    end
    cache[id] = kept
  end
  return kept or nil -- false if it was dropped in this step
end

-- Where an entry stands that cannot be read itself: its lane, and its level and member of the queue if it waits in line.
-- Its bytes mostly still show its lane; else all lanes and the whole queue are looked through, once for such an entry.
function Message.whereabouts(id, stored)
  local shown = string.match(stored, '%d+/%l+/@?[%w_%-]+') or '0/send/0'
  local function stands_in(lane)
    if lane.flight == id then return true end
    for level, line in pairs(lane.lines) do
      if line.id == id then return true, level end
      local low, high = Line.range(lane, level)
      for _, member in ipairs((line.more or 0) > 0 and call('ZRANGEBYLEX', KEY.queue, low, high) or Store.NOTHING) do
        if Line.parse(member).id == id then return true, level, member end
      end
    end
    return false
  end
  local lane = Lane.at(shown)
  local found, level, member = stands_in(lane)
  if found then return lane, level, member end
  for _, other in pairs(Now.lanes) do -- this step may have changed them
    found, level, member = stands_in(other)
    if found then return other, level, member end
  end
  local cursor, fields = '0', nil
  repeat
    cursor, fields = unpack(call('HSCAN', KEY.lanes, cursor, 'COUNT', 500))
    for i = 1, #fields, 2 do
      if string.find(fields[i + 1], id, 1, true) then
        local other = Lane.at(fields[i])
        found, level, member = stands_in(other)
        if found then return other, level, member end
      end
    end
  until cursor == '0'
  repeat
    cursor, fields = unpack(call('ZSCAN', KEY.queue, cursor, 'COUNT', 500))
    for i = 1, #fields, 2 do
      if string.sub(fields[i], -#id) == id and Line.parse(fields[i]).id == id then
        local key, its = string.match(fields[i], '^([^%z]+)%z(%d)%z')
        return Lane.at(key), tonumber(its), fields[i]
      end
    end
  until cursor == '0'
  return lane
end

-- A stored message cannot be read: it is dead, wherever it stands, and its bytes are its body. One that had ended is
-- dropped a little early, and a turn is lost. Returns the message, or false if nothing is left of it.
function Message.bury(id, stored)
  local entry = {
    id = id, state = 'queued', lane = nil, level = Level.NORMAL, cost = 1, created = Now.time, number = 0, body = stored,
    counting = Now.counting,
  }
  if call('ZSCORE', KEY.ended, id) then
    Store.later('ZREM', KEY.ended, id)
    return false
  end
  local lane, level, member = Message.whereabouts(id, stored)
  entry.lane, entry.level = lane.key, level or entry.level
  if call('ZSCORE', KEY.letters, id) then
    entry.state, entry.reason, entry.settled = 'dead', CONSTANT.UNREADABLE, Now.time
    entry.description = CONSTANT.DAMAGED_RECORD
    Message.order(entry)
    return entry
  end
  local leased = Now.lapsed == id or call('ZSCORE', KEY.leases, id)
  local sending = not level and (lane.flight == id or leased)
  if sending then
    entry.state = 'sending'
    Schedule.release(entry, lane, Now.time, true, false)
  elseif member then
    call('ZREM', KEY.queue, member)
    lane.lines[level].more = lane.lines[level].more > 1 and lane.lines[level].more - 1 or nil
    if Line.parse(member).retry then entry.state = 'retry' end
  elseif level then
    local line = lane.lines[level]
    if line.retry then entry.state = 'retry' end
    local pool = Lane.pool_for(lane, line.paid)
    Line.pop(lane, level, line)
    Schedule.unreserve(lane, level, line, pool)
    Schedule.place(lane, level, line)
  end
  Store.later('ZREM', KEY.leases, id)
  if Message.is_turn(id) then
    if not sending then Now.waiting_turns = math.max(0, Now.waiting_turns - 1) end
    Schedule.settle_lane(lane)
    return false
  end
  Message.order(entry)
  Message.finish(entry, 'dead', CONSTANT.UNREADABLE, CONSTANT.DAMAGED_RECORD)
  Schedule.settle_lane(lane)
  return entry
end

-- For reading only: changes to it are not written.
function Message.peek(id)
  local kept = Now.messages[id]
  if kept == nil then
    local stored = call('HGET', KEY.messages, id)
    kept = stored and (Message.parse(id, stored) or Message.load(Now.messages, KEY.messages, id))
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
      if key == KEY.messages then Store.later('ZREM', KEY.order, id) end
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

function Message.count(message, change)
  Store.count_of(Message.bot(message), Message.counter(message), change)
end

function Message.change_state(message, state)
  local bot = Message.bot(message)
  Store.count_of(bot, Message.counter(message), -1)
  message.state = state
  Store.count_of(bot, Message.counter(message), 1)
end

-- A message that an older version has stored, or one of a former counting (see `Steps.recount`), is counted with its bot
-- and by its age from now on. Each that a step changes is adopted before; `Message.adopt_some` adopts the others.
function Message.adopt(message)
  message.counting = Now.counting
  if Message.OPEN[message.state] then
    Message.note_age(message, true)
  elseif not Message.DEAD_LETTER[message.state] then
    return
  end
  Message.count(message, 1)
  Store.count(Message.counter(message), -1) -- of all bots it was counted before
end

-- Adopts a part of all messages. The scan goes on where the last one ended, whichever process made it.
function Message.adopt_some()
  local cursor, fields = unpack(call('HSCAN', KEY.messages, Now.adopted, 'COUNT', Bound.ADOPT))
  for i = 1, #fields, 2 do
    local id = fields[i]
    if Now.messages[id] == nil then
      local message = Message.parse(id, fields[i + 1])
      if message == nil then
        Message.at(id)
      elseif message.counting ~= Now.counting then
        Now.messages[id] = message
        Message.adopt(message)
      end
    end
  end
  Now.adopted = cursor == '0' and 'all' or cursor
end

-- From when it may go: a text of fixed length, so that texts sort as times do.
function Message.since(message)
  local since = math.max(message.created, message.due or 0)
  if since ~= Now.since then -- mostly the one of the message before
    Now.since, Now.since_text = since, string.format('%017.6f', since)
  end
  return Now.since_text
end

-- Notes that a message has, or has not, its place among those of its bot that have not ended, by age.
function Message.note_age(message, is_open)
  Now.ages[Message.bot(message) .. '\0' .. Message.since(message) .. '\0' .. message.id] = is_open
end

function Message.save_ages()
  local added, removed = {}, {}
  for member, is_open in pairs(Now.ages) do
    if is_open then
      added[#added + 1], added[#added + 2] = 0, member
    else
      removed[#removed + 1] = member
    end
  end
  Prelude.call_many('ZADD', KEY.ages, added)
  Prelude.call_many('ZREM', KEY.ages, removed)
  Now.ages = {}
end

-- Since when the oldest message of a bot may go that waits; nil if none does. Only those in flight are passed over, which
-- have their places, too: so a claim does not have to write here. One that has left without a trace is removed.
function Message.oldest(bot)
  local first = bot .. '\0'
  local last = '(' .. first .. string.format('%017.6f', Now.time) .. '\1'
  local passed = 0
  while true do
    local members = call('ZRANGEBYLEX', KEY.ages, '[' .. first, last, 'LIMIT', passed, 100)
    for _, member in ipairs(members) do
      local since, id = string.match(member, '^%d+%z([%d.]+)%z(.+)$')
      local message = not call('ZSCORE', KEY.leases, id) and Message.peek(id)
      if message and Message.waits(message) then return tonumber(since) end
      if message == nil or (message and not Message.OPEN[message.state]) then
        call('ZREM', KEY.ages, member)
      else
        passed = passed + 1
      end
    end
    if #members < 100 then return nil end
  end
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
    lane = message.lane,
    chat = message.chat,
  }
end

-- A message ends. It is kept for a while, or for its dedup lifetime if that is longer; dead letters until dropped.
function Message.finish(message, state, reason, description, quietly)
  Message.change_state(message, state)
  message.reason, message.description, message.settled = reason, description, Now.time
  Store.count(CONSTANT.OPEN_COUNT_PREFIX .. Message.bot(message), -1)
  Message.note_age(message, false)
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
      local id, pool = line.id, Lane.pool_for(lane, line.paid)
      local message = Message.at(id)
      if line.id == id then Line.pop(lane, level, line) end -- one that cannot be read has left by itself
      Schedule.unreserve(lane, level, line, pool)
      if message and Message.waits(message) then Message.finish(message, 'dead', reason, description) end
      left = left - 1
    end
  end
  if left == 0 or lane.arriving then -- those that are still to come from another lane are buried, too
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

-- What operators do: to messages, each of which ends or waits anew, and to whole bots and chats.

-- Cancel: messages that wait are taken out of their lines, and end. From ARGV[3] on: their ids. Replies how many.
function Steps.cancel()
  Step.run_due()
  local cancelled = 0
  for i = 3, #ARGV do
    local message = Message.at(ARGV[i])
    if message and Message.waits(message) then
      Schedule.remove(message)
      Message.finish(message, 'cancelled')
      cancelled = cancelled + 1
    end
  end
  return Step.finish({ count = cancelled })
end

-- Reprioritize: messages that wait, except urgent ones, move to the line of another level (ARGV[3]). Their bodies, which
-- say the priority as well, are replaced. From ARGV[4] on: id and body of each. Replies how many have that level now.
function Steps.reprioritize()
  Step.run_due()
  local level, count = tonumber(ARGV[3]), 0
  for i = 4, #ARGV, 2 do
    local message = Message.at(ARGV[i])
    if message and Message.waits(message) and message.level < Level.URGENT then
      if message.level ~= level then
        Message.count(message, -1)
        Schedule.change_level(message, level)
        message.body = ARGV[i + 1]
        Message.count(message, 1)
      end
      count = count + 1
    end
  end
  return Step.finish({ count = count })
end

-- Replay: dead and parked messages are queued anew, as if put now. From ARGV[3] on: their ids. Replies how many.
function Steps.replay()
  Step.run_due()
  local replayed = 0
  for i = 3, #ARGV do
    local message = Message.at(ARGV[i])
    if message and Message.DEAD_LETTER[message.state] then
      call('ZREM', KEY.letters, message.id)
      Message.change_state(message, 'queued')
      local bot, kind = string.match(message.lane, '^([^/]+)/([^/]+)/')
      message.lane, message.seq, message.retry = Lane.key(bot, kind, Message.chat(message)), nil, nil
      message.due = Now.time -- it has waited since then
      message.token = nil
      message.attempts, message.crashes, message.settled, message.reason, message.description = nil, nil, nil, nil, nil
      Store.count(CONSTANT.OPEN_COUNT_PREFIX .. bot, 1)
      Message.note_age(message, true)
      Message.add(message)
      replayed = replayed + 1
    end
  end
  return Step.finish({ count = replayed })
end

-- Drop: dead and parked messages are forgotten. From ARGV[3] on: their ids. Replies how many.
function Steps.drop()
  Step.run_due()
  local dropped = 0
  for i = 3, #ARGV do
    local message = Message.at(ARGV[i])
    if message and Message.DEAD_LETTER[message.state] then
      call('ZREM', KEY.letters, message.id)
      Message.count(message, -1)
      Message.forget(message)
      dropped = dropped + 1
    end
  end
  return Step.finish({ count = dropped })
end

-- Forget: these messages are erased, whether they wait or have ended. Those being sent stay. From ARGV[3] on: their ids.
-- Replies how many.
function Steps.forget()
  Step.run_due()
  local gone = 0
  for i = 3, #ARGV do
    local message = Message.at(ARGV[i])
    if message and message.state ~= 'sending' then
      if Message.DEAD_LETTER[message.state] then
        call('ZREM', KEY.letters, message.id)
        Message.count(message, -1)
      elseif Message.waits(message) then
        Schedule.remove(message)
        Message.finish(message, 'cancelled')
      end
      Message.forget(message)
      gone = gone + 1
    end
  end
  return Step.finish({ count = gone })
end

-- Open: ends the closure of a bot (ARGV[3]) and the wait of its outage, or the closure of one chat of it (ARGV[4], else
-- empty).
function Steps.open_limits()
  Step.run_due()
  local bot = ARGV[3]
  if ARGV[4] == '' then
    local stored = Lane.bot_at(bot)
    stored.closed = nil
    if stored.away then stored.away = 0 end
  else
    for _, kind in ipairs({ 'send', 'edit', 'action' }) do
      local lane = Lane.at(Lane.key(bot, kind, Schedule.current_chat(bot, ARGV[4])))
      lane.closed = nil
      for level, line in pairs(lane.lines) do
        if line.place == Place.WAITING then Schedule.place(lane, level, line) end
      end
      Lane.rest(lane)
    end
  end
  Schedule.activate_all(bot)
  return Step.finish()
end

-- How much longer the windows of a chat or bot get by other rules, which remember calls for as long as they are.
local function growth(before, after)
  local longer = 0
  for i, rate in ipairs(after) do
    longer = math.max(longer, rate[2] - before[i < #after and 1 or #before][2])
  end
  return longer
end

-- Set limits: a bot (ARGV[3]) has these limits of its own (ARGV[4], packed: rates by bot, private and group) instead of
-- those before, which the reply has. They hold from this step on: every lane and pool is reshaped when it is next read.
-- Windows that get longer count as full until the calls that nobody knows have left them: those that were made before
-- they were remembered, or, if they were made elsewhere (ARGV[5] is 1), all calls until now.
function Steps.set_limits()
  local id, own = ARGV[3], unpack_one(ARGV[4])
  local bot = Lane.bot_at(id)
  local before, full = bot.own, bot.full or {}
  for _, kind in ipairs({ 'bot', 'private', 'group' }) do
    local old, new = Lane.rules_of(before, kind), Lane.rules_of(own, kind)
    local longer, latest = growth(old, new), Now.time + new[1][2]
    -- A window that is full still does not know calls either that were made while it remembered others.
    local till = math.max(Now.time, full[kind] or 0) + longer
    if longer > 0 and ARGV[5] == '1' then till = latest end
    full[kind] = math.min(till, latest)
  end
  bot.full, bot.own = full, next(own) ~= nil and own or nil
  Step.run_due()
  for _, budget in ipairs({ 'send', 'edit' }) do
    local pool = Lane.pool_at(id .. '/' .. budget)
    pool.spaced = math.min(pool.spaced, Now.time + Share.spacing(pool, 1))
  end
  Schedule.activate_all(id)
  return Step.finish({ own = before })
end

-- Place lanes: lines of a bot (ARGV[3]) that wait until a known time are placed anew, as its limits are others now: a part
-- of all lanes, in no order, from the cursor ARGV[4] on. The next cursor is 0 at the end.
function Steps.place_lanes()
  Step.run_due()
  local prefix = ARGV[3] .. '/'
  local cursor, fields = unpack(call('HSCAN', KEY.lanes, ARGV[4], 'COUNT', 200))
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, #prefix) == prefix then
      local lane = Lane.at(fields[i])
      if lane.reserved_until then
        lane.reserved_until =
          math.min(lane.reserved_until, Now.time + CONSTANT.RESERVATION_WINDOWS * Lane.longest(lane))
      end
      for level, line in pairs(lane.lines) do
        if line.place == Place.WAITING then Schedule.place(lane, level, line) end
      end
    end
  end
  return Step.finish({ cursor = cursor })
end

-- Pause: messages of a bot (ARGV[3]), or of one chat of it (ARGV[4], else empty), are held (ARGV[5] is 1) or go on (0).
-- Direct calls are not affected.
function Steps.pause()
  Step.run_due()
  local bot, paused = ARGV[3], ARGV[5] == '1' or nil
  if ARGV[4] == '' then
    Lane.bot_at(bot).paused = paused
    if not paused then Schedule.activate_all(bot) end
  else
    for _, kind in ipairs({ 'send', 'edit', 'action' }) do
      local lane = Lane.at(Lane.key(bot, kind, Schedule.current_chat(bot, ARGV[4])))
      lane.paused = paused
      for level, line in pairs(lane.lines) do
        if line.place ~= nil then Schedule.place(lane, level, line) end
      end
      if not paused then Lane.rest(lane) end
    end
  end
  return Step.finish()
end

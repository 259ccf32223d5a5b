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
      message.lane, message.seq, message.due, message.retry = Lane.key(bot, kind, Message.chat(message)), nil, nil, nil
      message.token = nil
      message.attempts, message.crashes, message.settled, message.reason, message.description = nil, nil, nil, nil, nil
      Store.count(CONSTANT.OPEN_COUNT_PREFIX .. bot, 1)
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
      Store.count(message.state, -1)
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
        Store.count(message.state, -1)
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

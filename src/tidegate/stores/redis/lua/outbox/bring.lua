-- What another store has, written here as it was there (`tidegate move`). A step that is repeated changes nothing more.

local function mark_dedup(item)
  local known = call('HGET', KEY.dedup, item.dedup)
  if known and Now.time < unpack_one(known)[2] then return false end
  call('HSET', KEY.dedup, item.dedup, pack({ item.id, item.dedup_until + Now.offset }))
  return true
end

local function bring(item, body, result)
  if Now.messages[item.id] or call('HEXISTS', KEY.messages, item.id) == 1 then return 0 end
  local current = Schedule.current_chat(item.bot, item.chat)
  local message = {
    id = item.id, state = item.state, body = body, result = result ~= '' and result or nil,
    chat = item.chat ~= current and item.chat or nil, lane = Lane.key(item.bot, item.kind, current), level = item.level,
    urgent_as = item.urgent_as, cost = item.cost, paid = item.paid, attempts = item.attempts, crashes = item.crashes,
    created = item.created + Now.offset, settled = item.settled + Now.offset, reason = item.reason,
    description = item.description, number = Store.next_number(), counting = Now.counting,
  }
  if item.dedup and mark_dedup(item) then
    message.dedup, message.dedup_until = item.dedup, item.dedup_until + Now.offset
  end
  Now.messages[item.id] = message
  Message.order(message)
  if Message.DEAD_LETTER[item.state] then
    Message.count(message, 1)
    Store.later('ZADD', KEY.letters, Store.next_number(), item.id)
  else
    Store.later('ZADD', KEY.ended, math.max(item.forget + Now.offset, message.dedup_until or 0), item.id)
  end
  return 1
end

-- Bring: messages that have ended or are dead letters, with their states, reasons and dedup keys, in this order. One whose
-- id is known stays as it is; one whose dedup key is in use has none here. Replies how many are new.
-- ARGV[3]: the messages, packed; from ARGV[4] on: body and result (or empty) of each.
function Steps.bring()
  local brought = 0
  for i, item in ipairs(unpack_one(ARGV[3])) do
    brought = brought + bring(item, ARGV[2 + 2 * i], ARGV[3 + 2 * i])
  end
  return Step.finish({ count = brought })
end

local function learn(limited, learned)
  if not learned or not limited.rule or limited.learned then return end
  limited.learned = {
    step = learned.step, bad = learned.bad, interval = learned.interval, probing = learned.probing,
    cut_at = Now.time - learned.cut_ago, next_up = Now.time + learned.up_in,
  }
  Lane.apply_learned(limited)
  Flood.publish(limited)
end

-- Bring limits: closures and learned limits of chats, and of bots (without a chat; the kind is then the budget). The
-- longer closure holds; a limit that was learned here stays. Replies how many there were.
-- ARGV[3]: the limits, packed.
function Steps.bring_limits()
  local limits = unpack_one(ARGV[3])
  for _, item in ipairs(limits) do
    if item.chat then
      local lane = Lane.at(Lane.key(item.bot, item.kind, Schedule.current_chat(item.bot, item.chat)))
      if item.closed_for > 0 then lane.closed = math.max(lane.closed or 0, Now.time + item.closed_for) end
      learn(lane, item.learned)
      Schedule.settle_lane(lane)
    else
      local bot = Lane.bot_at(item.bot)
      if item.closed_for > 0 then bot.closed = math.max(bot.closed or 0, Now.time + item.closed_for) end
      learn(Lane.pool_at(item.bot .. '/' .. item.kind), item.learned)
    end
  end
  return Step.finish({ count = #limits })
end

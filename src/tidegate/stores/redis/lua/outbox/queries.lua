-- Questions to the outbox. None of them changes a message, except that due timers act first.

-- Find: the records of these messages, after everything that is due has acted. From ARGV[3] on: their ids.
function Steps.find()
  Step.run_due()
  local found = {}
  for i = 3, #ARGV do
    local message = Message.peek(ARGV[i])
    if message then found[#found + 1] = Message.report(message) end
  end
  local at = Timers.next_at()
  return Step.finish({ found = found, delay = at < NEVER and math.max(0, at - Now.time) or nil })
end

-- Dead letters: dead and parked messages, the oldest first, ARGV[4] of them from place ARGV[3] on.
function Steps.dead_letters()
  Step.run_due()
  local found = {}
  local first, size = tonumber(ARGV[3]), tonumber(ARGV[4])
  for _, id in ipairs(call('ZRANGE', KEY.letters, first, first + size - 1)) do
    local message = Message.peek(id)
    if message then found[#found + 1] = Message.report(message) end
  end
  return Step.finish({ found = found })
end

-- Scan: a part of all messages, in no order: those that match the filter (ARGV[4], packed), from the cursor ARGV[3] on.
-- The next cursor is 0 at the end. A message that exists during the whole scan is found at least once.
function Steps.scan()
  local filter = unpack_one(ARGV[4])
  local cursor, fields = unpack(call('HSCAN', KEY.messages, ARGV[3], 'COUNT', 250))
  local found = {}

  local function matches(message)
    return (not filter.states or filter.states[message.state])
      and (not filter.bot or Message.bot(message) == filter.bot)
      and (not filter.chat or Message.chat(message) == filter.chat)
      and (not filter.reason or message.reason == filter.reason)
      and (not filter.before or (message.settled or message.created) < filter.before + Now.offset)
      and (not filter.dedup or string.sub(message.dedup or '', 1, #filter.dedup) == filter.dedup)
  end

  for i = 1, #fields, 2 do
    local message = Message.parse(fields[i], fields[i + 1]) or Message.at(fields[i])
    if message and matches(message) then
      if filter.bare then message.body, message.result = '', nil end
      found[#found + 1] = Message.report(message)
    end
  end
  return Step.finish({ cursor = cursor, found = found })
end

-- Stats: how many messages there are in each state, after everything that is due has acted.
function Steps.stats()
  Step.run_due()
  local counts = {}
  local fields = call('HGETALL', KEY.counts)
  for i = 1, #fields, 2 do counts[fields[i]] = tonumber(fields[i + 1]) end
  for name, change in pairs(Now.counted) do counts[name] = (counts[name] or 0) + change end
  return Step.finish({ counts = counts })
end

-- Seconds until a call fits into a limit, apart from what others take. After a restart, a limit is unused for a while.
local function window_wait(window, rate, cost)
  local forgotten = rate[3] and 0 or Now.forgotten_until + rate[2] - Now.time
  return math.max(Window.wait(window, rate, cost, Now.time), forgotten)
end

-- Why: the facts that keep a message (ARGV[3]) from being sent now.
function Steps.why()
  Step.run_due()
  local message = Message.peek(ARGV[3])
  if message == nil then return Step.finish() end
  local facts = { state = message.state, until_due = math.max(0, (message.due or 0) - Now.time) }
  if Message.waits(message) then
    local lane = Lane.at(message.lane)
    local line, bot = Lane.line(lane, message.level), Lane.bot_at(lane.bot)
    facts.retry_in, facts.crashes = math.max(0, (message.retry or 0) - Now.time), message.crashes or 0
    if line.id ~= message.id and (message.seq or 0) > 0 then
      local low = Line.range(lane, message.level)
      facts.ahead = 1 + call('ZLEXCOUNT', KEY.queue, low, '(' .. Line.member(lane, message.level, message))
    end
    facts.each = lane.rates[1][2] / lane.rates[1][1]
    facts.in_flight = lane.flight ~= nil
    facts.paused = { bot = bot.paused, chat = lane.paused }
    facts.closed = { bot = math.max(0, (bot.closed or 0) - Now.time), chat = math.max(0, (lane.closed or 0) - Now.time) }
    facts.away, facts.obstacle = math.max(0, (bot.away or 0) - Now.time), bot.obstacle
    facts.full = {}
    if message.cost > 0 then
      local pool = Lane.pool_for(lane, message.paid)
      for i = 1, Lane.limits_of(lane, message.level) do
        facts.full[#facts.full + 1] = { 'chat', window_wait(lane.open[i], lane.rates[i], message.cost) }
      end
      if pool.rule then
        facts.full[#facts.full + 1] = { 'bot', window_wait(pool.open[1], pool.rates[1], message.cost) }
      end
    end
  end
  return Step.finish({ why = facts })
end

-- Wait for: replies the seconds until a call could be made that goes behind all that waits for its chat. Takes nothing.
function Steps.wait_for()
  local request = unpack_one(ARGV[3])
  Step.run_due()
  local chat = Schedule.current_chat(request.bot, request.chat)
  local lane, bot = Lane.at(Lane.key(request.bot, request.kind, chat)), Lane.bot_at(request.bot)
  local pool = Lane.pool_for(lane)

  -- A wait that ends with an answer is estimated: the answer comes soon, and then the slot cools.
  local wait = math.max(0, (lane.closed or 0) - Now.time, (bot.closed or 0) - Now.time)
  local function look(window, rate)
    local its = window_wait(window, rate, request.cost)
    wait = math.max(wait, its == NEVER and rate[2] or its)
  end
  if request.cost > 0 then
    if pool.rule then look(pool.open[1], pool.rates[1]) end
    for i = 1, Lane.limits_of(lane, Level.TURN) do look(lane.open[i], lane.rates[i]) end
  end
  local ahead = lane.flight and 1 or 0
  for _, line in pairs(lane.lines) do
    if line.id then ahead = ahead + 1 + (line.more or 0) end
  end
  return Step.finish({ wait = math.max(wait, ahead * lane.rates[1][2] / lane.rates[1][1]) })
end

-- Closed lanes: the keys of the lanes that a 429 has closed among a part of all, and for how many seconds, in no order, from
-- the cursor ARGV[3] on. The next cursor is 0 at the end.
function Steps.closed_lanes()
  local cursor, fields = unpack(call('HSCAN', KEY.lanes, ARGV[3], 'COUNT', 500))
  local closed = {}
  for i = 1, #fields, 2 do
    local rare = Lane.parse(fields[i + 1])
    if rare and (rare.closed or 0) > Now.time then closed[#closed + 1] = { fields[i], rare.closed - Now.time, '' } end
  end
  return Step.finish({ cursor = cursor, closed = closed })
end

-- Closed bots: those that a 429 has closed, or that cannot send, of the ids from ARGV[3] on.
function Steps.closed_bots()
  local closed = {}
  for i = 3, #ARGV do
    local bot = Lane.bot_at(ARGV[i])
    local seconds = math.max(0, (bot.closed or 0) - Now.time)
    if seconds > 0 or bot.obstacle then closed[#closed + 1] = { ARGV[i], seconds, bot.obstacle or '' } end
  end
  return Step.finish({ closed = closed })
end

-- Paused lanes: the keys of the paused lanes among a part of all, in no order, from the cursor ARGV[3] on. The next
-- cursor is 0 at the end.
function Steps.paused_lanes()
  local cursor, fields = unpack(call('HSCAN', KEY.lanes, ARGV[3], 'COUNT', 500))
  local paused = {}
  for i = 1, #fields, 2 do
    local rare = Lane.parse(fields[i + 1])
    if rare and rare.paused then paused[#paused + 1] = fields[i] end
  end
  return Step.finish({ cursor = cursor, lanes = paused })
end

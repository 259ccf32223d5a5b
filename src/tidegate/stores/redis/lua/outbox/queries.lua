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

-- Letters by reason: dead letters counted by bot, state and reason, ARGV[4] of them from place ARGV[3] on: those of the bot
-- ARGV[5] that ended by the time ARGV[6], if these are not empty. Replies the groups and how many were looked at.
function Steps.letters_by_reason()
  Step.run_due()
  local groups, known = {}, {}
  local first, size = tonumber(ARGV[3]), tonumber(ARGV[4])
  local ids = call('ZRANGE', KEY.letters, first, first + size - 1)
  for _, id in ipairs(ids) do
    local message = Message.peek(id)
    local bot = message and Message.bot(message)
    local settled = message and (message.settled or message.created) - Now.offset
    if message and (ARGV[5] == '' or bot == ARGV[5]) and (ARGV[6] == '' or settled <= tonumber(ARGV[6])) then
      local key = bot .. '/' .. message.state .. '/' .. (message.reason or '')
      local group = known[key]
      if group == nil then
        group = { bot, message.state, message.reason or false, 0, settled, settled, id }
        known[key], groups[#groups + 1] = group, group
      end
      group[4], group[5] = group[4] + 1, math.min(group[5], settled)
      if settled >= group[6] then group[6], group[7] = settled, id end
    end
  end
  return Step.finish({ letters = groups, count = #ids })
end

local function matches(filter, message)
  return (not filter.states or filter.states[message.state])
    and (not filter.bot or Message.bot(message) == filter.bot)
    and (not filter.chat or Message.chat(message) == filter.chat)
    and (not filter.reason or message.reason == filter.reason)
    and (not filter.before or (message.settled or message.created) < filter.before + Now.offset)
    and (not filter.dedup or string.sub(message.dedup or '', 1, #filter.dedup) == filter.dedup)
end

-- Texts that the bytes of each message contain that matches. So most others need not be decoded, which is slow.
local function texts_of(filter)
  local texts = { filter.bot and filter.bot .. '/' }
  texts[#texts + 1] = filter.chat
  texts[#texts + 1] = filter.reason
  texts[#texts + 1] = filter.dedup
  return texts
end

local function may_match(stored, filter, texts)
  local state = string.match(stored, '^[\160-\191](%l+)[^%l]*%d/%l+/') -- it begins with state and lane
  if not Message.STATES[state or ''] then return true end -- its record is damaged: its chat is found by its line
  if filter.states and not filter.states[state] then return false end
  for i = 1, #texts do
    if not string.find(stored, texts[i], 1, true) then return false end
  end
  return true
end

-- Scan: a part of all messages, in no order: those that match the filter (ARGV[4], packed), from the cursor ARGV[3] on.
-- The next cursor is 0 at the end. A message that exists during the whole scan is found at least once.
function Steps.scan()
  local filter = unpack_one(ARGV[4])
  local cursor, fields = unpack(call('HSCAN', KEY.messages, ARGV[3], 'COUNT', 250))
  local found, texts = {}, texts_of(filter)
  for i = 1, #fields, 2 do
    local id, stored = fields[i], fields[i + 1]
    local message = may_match(stored, filter, texts) and (Message.parse(id, stored) or Message.at(id))
    if message and matches(filter, message) then
      if filter.bare then message.body, message.result = '', nil end
      found[#found + 1] = Message.report(message)
    end
  end
  return Step.finish({ cursor = cursor, found = found })
end

-- What a list needs of the order before it is read: that each message up to a number has its place. Replies this number,
-- 0 if none is missing.
local function order_needed()
  Message.note_unordered()
  local unordered = call('HGET', KEY.meta, 'unordered')
  if not unordered and call('ZCARD', KEY.order) < call('HLEN', KEY.messages) then
    unordered = Now.numbers -- Redis has evicted it, for example
    call('HSET', KEY.meta, 'unordered', unordered, 'order_scanned', 0)
  end
  return tonumber(unordered or 0)
end

-- Page: up to ARGV[4] messages that match the filter (ARGV[5], packed), from place ARGV[3] on, in the order of their puts;
-- dead letters (ARGV[6] is `letters`) in the order of their ends. Their numbers are their places. Replies as the cursor
-- the place that the next step goes on from, which is empty at the end.
--
-- First each message up to a number is given its place, in short steps: `more` says that this is not over, and `count`
-- is the number, which further steps are told as ARGV[7].
function Steps.page()
  local key = ARGV[6] == 'letters' and KEY.letters or KEY.order
  local needed = tonumber(ARGV[7]) or (key == KEY.order and order_needed() or 0)
  if needed > tonumber(call('HGET', KEY.meta, 'order_scanned') or 0) then
    Message.order_some()
    Now.more = true
    return Step.finish({ count = needed })
  end
  local size, filter = tonumber(ARGV[4]), unpack_one(ARGV[5])
  local texts, found, bytes = texts_of(filter), {}, 0

  local function look_at(id, stored)
    if not stored then
      Store.later('ZREM', key, id) -- an older version has forgotten it
      return
    end
    bytes = bytes + #stored
    local message = may_match(stored, filter, texts) and Message.peek(id)
    if message and matches(filter, message) then
      found[#found + 1] = Message.report(message)
      found[#found].number = tonumber(call('ZSCORE', key, id))
    end
  end

  local ids, first, room = call('ZRANGEBYSCORE', key, '(' .. ARGV[3], '+inf', 'LIMIT', 0, Bound.PAGE), 1, 16
  while first <= #ids do -- few at first: they may be large, or suffice
    local last = math.min(first + room - 1, #ids)
    local stored = call('HMGET', KEY.messages, unpack(ids, first, last))
    for i = first, last do
      look_at(ids[i], stored[i - first + 1])
      if #found == size or bytes >= Bound.BYTES or i == Bound.PAGE then
        return Step.finish({ found = found, cursor = string.format('%.0f', call('ZSCORE', key, ids[i])), count = needed })
      end
    end
    first, room = last + 1, math.min(2 * room, 256)
  end
  return Step.finish({ found = found, cursor = '', count = needed })
end

local function open_bots()
  local bots = {}
  local fields = call('HGETALL', KEY.counts)
  for i = 1, #fields, 2 do
    local bot = string.match(fields[i], '^' .. CONSTANT.OPEN_COUNT_PREFIX .. '(%d+)$')
    if bot then bots[#bots + 1] = bot end
  end
  return bots
end

-- Stats: how many messages there are in each state, after everything that is due has acted. With ARGV[3] also since when
-- the oldest message of each bot may go that waits; if that is `bots` also the numbers of each bot. Both are complete when
-- no `more` is to be done: messages of an older version are adopted first.
function Steps.stats()
  Step.run_due()
  local counts, of_bots, oldest = {}, nil, nil
  if ARGV[3] and Now.adopted ~= 'all' then
    Message.adopt_some()
    Now.more = Now.more or Now.adopted ~= 'all'
  end
  Message.save_ages()
  Step.flush()
  Step.write_counts()
  Now.counted, Now.counted_of = {}, {}
  local fields = call('HGETALL', KEY.counts)
  for i = 1, #fields, 2 do counts[fields[i]] = tonumber(fields[i + 1]) end
  if ARGV[3] and not Now.more then
    oldest = {}
    for _, bot in ipairs(open_bots()) do
      local since = Message.oldest(bot)
      if since then oldest[#oldest + 1] = { tonumber(bot), since - Now.offset } end
    end
  end
  if ARGV[3] == 'bots' and not Now.more then
    of_bots = {}
    fields = call('HGETALL', KEY.bot_counts)
    for i = 1, #fields, 2 do
      local bot, name = string.match(fields[i], '^(%d+)/(.+)$')
      of_bots[#of_bots + 1] = { tonumber(bot), name, tonumber(fields[i + 1]) }
    end
  end
  return Step.finish({ counts = counts, of_bots = of_bots, oldest = oldest })
end

-- Recount: all messages are adopted anew. For numbers of bots that do not add up, as a process of an older version has
-- changed messages: it does not count by bot.
function Steps.recount()
  Now.counting, Now.adopted = Now.counting + 1, '0'
  for _, field in ipairs(call('HKEYS', KEY.bot_counts)) do
    local name = string.match(field, '^%d+/(.+)$')
    if CONSTANT.COUNTED_ANEW[name] then call('HDEL', KEY.bot_counts, field) end
  end
  call('DEL', KEY.ages)
  return Step.finish()
end

-- Seconds until a call fits into the i-th limit of a lane or pool, apart from what others take. After a restart, or a
-- change to a longer window, a limit is unused for a while.
local function window_wait(limited, i, cost)
  local rate = limited.rates[i]
  local forgotten = rate[3] and 0 or Now.forgotten_until + rate[2] - Now.time
  return math.max(Window.wait(limited.open[i], rate, cost, Now.time), forgotten, (limited.full or 0) - Now.time)
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
        facts.full[#facts.full + 1] = { 'chat', window_wait(lane, i, message.cost) }
      end
      if pool.rule then
        facts.full[#facts.full + 1] = { 'bot', window_wait(pool, 1, message.cost) }
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
  local function look(limited, i)
    local its = window_wait(limited, i, request.cost)
    wait = math.max(wait, its == NEVER and limited.rates[i][2] or its)
  end
  if request.cost > 0 then
    if pool.rule then look(pool, 1) end
    for i = 1, Lane.limits_of(lane, Level.TURN) do look(lane, i) end
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

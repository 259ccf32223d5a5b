-- Who goes next: the schedule of outbox/schedule.py on what Redis holds.
--
-- An entry is a message or a turn: {id, lane (its key), level, cost, paid, seq, token, retry, cooled}.

local entry_of -- by id; defined where messages and turns are known

local function activate(pool)
  pool.asleep, pool.wake = nil, 0
  if not pool.active then
    pool.active = true
    call('ZADD', KEY.active, next_number(), pool.key)
  end
end

-- Out of the round: until then; until an answer comes if that is never; until a line if it is 0.
local function sleep(pool, till)
  call('ZREM', KEY.active, pool.key)
  pool.active, pool.wake, pool.asleep = nil, till, till == NEVER or nil
  if till > 0 and till < NEVER then set_timer(till, 'P', pool.key) end
end

-- Whether no other line of the lane has slots reserved for it. Urgent ones and turns do not ask.
local function unbarred(lane, level)
  return lane.reserved == nil or lane.reserved == level or level >= URGENT
end

-- Whether a turn lets a line go first that has slots reserved: until a time, as its owner waits.
local function stands_back(lane, level)
  return level >= TURN and lane.reserved ~= nil and lane.reserved ~= level and not bot_at(lane.bot).paused
end

local function lane_wait(lane, level, line)
  step_up(lane)
  local wait = 0
  for i, window in ipairs(lane.open) do
    wait = math.max(wait, Window.wait(window, lane.rates[i], line.cost, now))
  end
  if wait > 0 and line.cost > 1 and (line.retry or 0) <= now then
    -- Cheaper ones of this chat take each slot as it gets free; after a while they must not.
    line.passed = (line.passed or 0) + 1
    local ran_out = lane.reserved == level and (lane.reserved_until or 0) <= now -- while nobody claimed it
    if line.passed >= PATIENCE and (lane.reserved == nil or ran_out) then
      lane.reserved, lane.reserved_until = level, now + RESERVED * longest(lane)
    end
  end
  return wait
end

local place

-- It does not wait for its slots any more: those who let it go first may go.
local function unreserve(lane, level, line, pool)
  line.passed = nil
  if pool.reserved == lane.key .. '\0' .. level then
    pool.reserved = nil
    activate(pool)
  end
  if lane.reserved == level then
    lane.reserved = nil
    for other, others_line in pairs(lane.lines) do
      if other ~= level and (others_line.place == BLOCKED or others_line.place == WAITING) then
        place(lane, other, others_line)
      end
    end
  end
end

local function become_ready(lane, level, line)
  local pool = pool_for(lane, line.paid)
  line.place = READY
  join_share(pool, level)
  join_ready(lane, level, line, pool)
  if pool.wake <= now or level == HIGH or level >= URGENT then activate(pool) end
end

-- Find out whether a line may go: ready, waiting until a known time, or blocked by its own lane.
place = function(lane, level, line)
  leave_ready(lane, level, line)
  if line.id == nil then
    line.place, line.passed = nil, nil
    return
  end
  local held = lane.paused and level < TURN
  if held then unreserve(lane, level, line, pool_for(lane, line.paid)) end
  if held or lane.flight or not unbarred(lane, level) then
    line.place = BLOCKED
    return
  end
  local till = math.max(line.retry or 0, lane.closed or 0)
  if stands_back(lane, level) then till = math.max(till, lane.reserved_until or 0) end
  if line.cost > 0 and level ~= URGENT then
    till = math.max(till, now + lane_wait(lane, level, line), restarted + longest(lane))
  end
  if till == NEVER then
    line.place = BLOCKED
  elseif till > now then
    line.place, line.wake = WAITING, till
    set_timer(till, 'L', lane.key .. '\0' .. level)
  else
    become_ready(lane, level, line)
  end
end

-- The lines of a lane find their places after a call is over.
local function settle_lane(lane)
  local empty = true
  for level, line in pairs(lane.lines) do
    -- Of what is unordered, another call may have given back what this one waits for.
    if line.place == nil or line.place == BLOCKED or (lane.kind == 'action' and line.place == WAITING) then
      place(lane, level, line)
    end
    if line.id then empty = false end
  end
  if empty then rest(lane) end
end

local function current_chat(bot, chat)
  if is_private(chat) then return chat end -- people keep their numbers
  for _ = 1, 10 do
    local known = call('HGET', KEY.aliases, bot .. '/' .. chat)
    if not known then break end
    chat = known
  end
  return chat
end

-- The lane by which a chat goes now: it may have migrated while an entry was not in line.
local function lane_of(entry)
  local bot, kind, chat = string.match(entry.lane, '^([^/]+)/([^/]+)/(.+)$')
  local current = current_chat(bot, chat)
  if current ~= chat then entry.lane = lane_key(bot, kind, current) end
  return lane_at(entry.lane)
end

-- To the end of its line.
local function join(entry)
  local lane = lane_of(entry)
  entry.seq = next_number()
  local line = line_of(lane, entry.level)
  append(lane, entry.level, line, entry)
  if line.place == nil then place(lane, entry.level, line) end
end

-- Back to the head of its line, to go at `at`. `settle_lane` places it.
local function again(entry, at)
  entry.retry = at
  local lane = lane_at(entry.lane)
  local line = line_of(lane, entry.level)
  push_front(lane, entry.level, line, entry)
  line.place = BLOCKED
end

-- Take a waiting entry out of its line.
local function remove(entry)
  if (entry.seq or 0) == 0 then return end -- it is not due yet
  local lane = lane_at(entry.lane)
  local line = lane.lines[entry.level]
  if line == nil then return end
  local pool = pool_for(lane, entry.paid)
  if take_out(lane, entry.level, line, entry) then
    unreserve(lane, entry.level, line, pool)
    place(lane, entry.level, line)
  end
  if not has_lines(lane) then rest(lane) end
end

-- The call is over, its answer came `at`: slots cool, or are free at once if it was never sent.
local function release(entry, lane, at, sent, answered)
  local pool = pool_for(lane, entry.paid)
  if lane.flight == entry.id then lane.flight = nil end
  if entry.cost > 0 and not entry.cooled then
    for _, pair in ipairs(windows_of(lane, pool)) do
      if sent then
        Window.answered(pair[1], pair[2], at, entry.cost, now)
      else
        pair[1].held = pair[1].held - entry.cost
      end
    end
    local share = share_of(entry.level)
    if not sent and (share == NORMAL or share == LOW) then pool.spaced = pool.spaced - spacing(pool, entry.cost) end
  elseif entry.cost > 0 and answered then -- after a silence: it may have been counted only now
    for _, pair in ipairs(windows_of(lane, pool)) do
      pair[1].held = pair[1].held + entry.cost
      Window.answered(pair[1], pair[2], at, entry.cost, now)
    end
  end
  entry.token, entry.cooled, lane.last = nil, nil, at
  if not sent or pool.asleep then activate(pool) end
end

-- No answer for too long: the slots cool from now on, the entry stays in flight.
local function cool(entry)
  if entry.cost == 0 or entry.cooled then return end
  entry.cooled = true
  local lane = lane_at(entry.lane)
  local pool = pool_for(lane, entry.paid)
  for _, pair in ipairs(windows_of(lane, pool)) do
    Window.answered(pair[1], pair[2], now, entry.cost, now)
  end
  if pool.asleep then activate(pool) end
  count('uncertain', 1)
end

local function hold(lane, pool, level, cost)
  local in_debt = false
  for _, pair in ipairs(windows_of(lane, pool)) do
    in_debt = in_debt or not Window.fits(pair[1], pair[2], cost)
    pair[1].held = pair[1].held + cost
  end
  if level == URGENT and in_debt then count('urgent', 1) end
end

local function grant(pool, lane, level, line)
  local entry = entry_of(line.id)
  pop(lane, level, line)
  line.passed = nil
  if lane.reserved == level then
    lane.reserved = nil
    for other, others_line in pairs(lane.lines) do
      if other >= TURN and others_line.place == WAITING then
        others_line.place = BLOCKED -- it let this one go first: `settle_lane` looks after it
      end
    end
  end
  if pool.reserved == lane.key .. '\0' .. level then pool.reserved = nil end
  if entry.cost > 0 then hold(lane, pool, level, entry.cost) end
  entry.token, entry.retry = next_number(), nil
  later('ZADD', KEY.leases, exact(now + terms.lease), entry.id)
  account(pool, level, entry.cost)
  if lane.kind == 'action' then -- unordered: several may be in flight
    place(lane, level, line)
  else
    lane.flight = entry.id
    if line.id then line.place = BLOCKED else line.place = nil end
  end
  return entry
end

-- Whether what was true when the line became ready still is.
local function may(lane, level, line)
  if lane.flight or (lane.paused and level < TURN) then return false end
  if (lane.closed or 0) > now or not unbarred(lane, level) then return false end
  if stands_back(lane, level) and (lane.reserved_until or 0) > now then return false end
  if line.cost > 0 and level ~= URGENT then
    if restarted + longest(lane) > now then return false end
    for i, window in ipairs(lane.open) do
      if not Window.fits(window, lane.rates[i], line.cost) then return false end
    end
  end
  return true
end

-- Others may go where this one does not fit, a few times; then slots are kept for it.
local function pass_over(pool, lane, level, line)
  line.passed = (line.passed or 0) + 1
  local till = now + math.min(Window.wait(pool.open[1], pool.rates[1], line.cost, now), pool.rates[1][2])
  if line.passed >= PATIENCE then
    pool.reserved = lane.key .. '\0' .. level
    sleep(pool, till)
    return false
  end
  leave_ready(lane, level, line)
  line.place, line.wake = WAITING, till
  set_timer(till, 'L', lane.key .. '\0' .. level)
  return true
end

-- Grant the next entry of a pool. If there is none now, it sleeps, unless only room is lacking. `messages`: those are
-- asked too; without `room`, one whose turn it is is left to the workers that wait for it.
local function take(pool, messages, room)
  local bot = bot_at(pool.bot)
  local closed = bot.closed or 0
  if pool.rule then closed = math.max(closed, restarted + pool.rates[1][2]) end
  if closed > now then
    sleep(pool, closed)
    return nil
  end
  if pool.rule then step_up(pool) end
  local away = (bot.away or 0) > now
  local willing = messages and not away and not bot.paused
  while looked < LINES do
    looked = looked + 1
    local first = next_line(pool, willing)
    if first == nil then
      local till = rest_until(pool)
      if till == 0 and away then till = bot.away end
      if room or till > 0 then sleep(pool, till) end -- else there may be room for messages soon
      return nil
    end
    local lane, level = lane_at(first.key), first.level
    local line = lane.lines[level]
    if level < TURN and not room then
      return nil
    elseif entry_of(line.id) == nil then -- whoever runs this Redis let it throw things away
      pop(lane, level, line)
      place(lane, level, line)
    elseif not may(lane, level, line) then
      place(lane, level, line)
    elseif pool.rule and line.cost > 0 and level ~= URGENT
      and not Window.fits(pool.open[1], pool.rates[1], line.cost) then
      if Window.free(pool.open[1], pool.rates[1]) <= 0 then
        sleep(pool, now + Window.wait(pool.open[1], pool.rates[1], 1, now))
        return nil
      end
      if not pass_over(pool, lane, level, line) then return nil end
    else
      return grant(pool, lane, level, line)
    end
  end
  return nil
end

-- Grant what may go now: up to `room` messages, and every turn. Bots take turns.
local function grant_round(room)
  local granted, tried = {}, 0
  local round = call('ZRANGE', KEY.active, 0, POOLS - 1)
  while #round > 0 and looked < LINES and (room > 0 or (waiting_turns > 0 and tried < #round)) do
    local pool = pool_at(round[1])
    local entry = take(pool, room > 0 or claimers > now, room > 0)
    table.remove(round, 1)
    if pool.active then round[#round + 1] = pool.key end
    if entry then
      granted[#granted + 1], tried = entry, 0
      if entry.level >= TURN then waiting_turns = waiting_turns - 1 else room = room - 1 end
    elseif pool.active then -- it has messages only, and there is no room for those
      tried = tried + 1
    end
    if #round == 0 then round = call('ZRANGE', KEY.active, 0, POOLS - 1) end -- some were activated meanwhile
  end
  if #round > 1 then -- the next round begins where this one ended
    local order = {}
    for _, key in ipairs(round) do
      order[#order + 1], order[#order + 2] = next_number(), key
    end
    call_many('ZADD', KEY.active, order)
  end
  return granted
end

-- Grant a turn that has no rival, without a line: this is what most direct calls are.
local function grant_at_once(turn, lane)
  local pool, cost = pool_for(lane, turn.paid), turn.cost
  local bot = bot_at(lane.bot)
  if (lane.closed or 0) > now or (bot.closed or 0) > now or lane.flight or pool.reserved then return false end
  if pool.learned or lane.learned or has_lines(lane) then return false end
  for _, waiting in pairs(pool.ready) do
    if waiting > 0 then return false end
  end
  if turn.level ~= TURN and now < pool.spaced then return false end
  for _, pair in ipairs(windows_of(lane, pool)) do
    if restarted + pair[2][2] > now or not Window.fits(pair[1], pair[2], cost) then return false end
  end
  hold(lane, pool, turn.level, cost)
  turn.token = next_number()
  join_share(pool, turn.level)
  account(pool, turn.level, cost)
  if lane.kind ~= 'action' then lane.flight = turn.id end
  later('ZADD', KEY.leases, exact(now + terms.lease), turn.id)
  return true
end

-- The chat of a lane has another id: what waits there waits here, in order of arrival. It is still the same chat:
-- what cools, what is closed and what is paused go along.
local function move_lines(lane, target)
  for level, line in pairs(lane.lines) do
    leave_ready(lane, level, line)
    local into = line_of(target, level)
    leave_ready(target, level, into)
    while line.id do
      local entry = head_of(line)
      local kept = entry_of(entry.id)
      if kept then kept.lane = target.key end
      pop(lane, level, line)
      if into.id and into.seq > entry.seq then
        push_front(target, level, into, entry)
      else
        append(target, level, into, entry)
      end
    end
    line.place = nil
    place(target, level, into)
  end
end

local function move_lane(lane, chat)
  if chat == lane.chat then return end
  local target = lane_at(lane_key(lane.bot, lane.kind, chat))
  target.paused = target.paused or lane.paused
  target.closed = math.max(target.closed or 0, lane.closed or 0)
  for i, window in ipairs(lane.open) do
    Window.merge(target.open[i], window)
  end
  move_lines(lane, target)
  lane.paused, lane.closed, lane.learned = nil, nil, nil
  if not has_lines(target) then rest(target) end
end

local ALIASES = 10000

-- A chat goes by another id from now on: its lane moves there, and what comes later follows.
local function alias(lane, chat)
  chat = current_chat(lane.bot, chat)
  if chat == lane.chat or is_private(lane.chat) then return end
  call('HSET', KEY.aliases, lane.bot .. '/' .. lane.chat, chat)
  if call('HLEN', KEY.aliases) > ALIASES then
    call('HDEL', KEY.aliases, call('HRANDFIELD', KEY.aliases))
  end
  move_lane(lane, chat)
end

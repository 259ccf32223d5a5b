-- The schedule of `outbox/schedule.py` on data in Redis: which entry is granted next.
--
-- An entry is a message or a turn: {id, lane (its key), level, cost, paid, seq, token, retry, cooled}.

function Schedule.activate(pool)
  pool.asleep, pool.wake = nil, 0
  if not pool.active then
    pool.active = true
    call('ZADD', KEY.active, Store.next_number(), pool.key)
  end
end

function Schedule.activate_all(bot)
  for _, budget in ipairs({ 'send', 'edit', 'action', 'paid' }) do
    local pool = Lane.pool_at(bot .. '/' .. budget)
    if next(pool.ready) ~= nil then Schedule.activate(pool) end
  end
end

-- Whether the one message that finds out whether the bot can send again is in flight.
function Schedule.is_probed(bot)
  local entry = bot.probe and Message.entry(bot.probe)
  if entry and entry.token then return true end
  bot.probe = nil
  return false
end

-- Takes a pool out of the round: until `till`; until an answer comes if that is NEVER; until a line is ready if it is 0.
function Schedule.sleep(pool, till)
  call('ZREM', KEY.active, pool.key)
  pool.active, pool.wake, pool.asleep = nil, till, till == NEVER or nil
  if till > 0 and till < NEVER then Timers.set(till, 'P', pool.key) end
end

-- Whether no other line of the lane has slots reserved. Urgent messages and turns ignore reservations.
function Schedule.unbarred(lane, level)
  return lane.reserved == nil or lane.reserved == level or level >= Level.URGENT
end

-- Whether a turn lets a line with reserved slots go first. It does for a limited time, as a caller waits for it.
function Schedule.stands_back(lane, level)
  return level >= Level.TURN and lane.reserved ~= nil and lane.reserved ~= level and not Lane.bot_at(lane.bot).paused
end

function Schedule.lane_wait(lane, level, line)
  Flood.step_up(lane)
  local wait = 0
  for i = 1, Lane.limits_of(lane, level) do
    wait = math.max(wait, Window.wait(lane.open[i], lane.rates[i], line.cost, Now.time))
  end
  if wait > 0 and line.cost > 1 and (line.retry or 0) <= Now.time then
    -- Cheaper messages of this chat take each slot as it gets free; after a while they must not.
    line.passed = (line.passed or 0) + 1
    local ran_out = lane.reserved == level and (lane.reserved_until or 0) <= Now.time -- while nobody claimed it
    if line.passed >= CONSTANT.SKIPS_BEFORE_RESERVATION and (lane.reserved == nil or ran_out) then
      lane.reserved, lane.reserved_until = level, Now.time + CONSTANT.RESERVATION_WINDOWS * Lane.longest(lane)
    end
  end
  return wait
end

-- A line does not wait for its reserved slots any more: the others may go.
function Schedule.unreserve(lane, level, line, pool)
  line.passed = nil
  if pool.reserved == lane.key .. '\0' .. level then
    pool.reserved = nil
    Schedule.activate(pool)
  end
  if lane.reserved == level then
    lane.reserved = nil
    for other, others_line in pairs(lane.lines) do
      if other ~= level and (others_line.place == Place.BLOCKED or others_line.place == Place.WAITING) then
        Schedule.place(lane, other, others_line)
      end
    end
  end
end

-- The crashes of a suspect, a message that may have killed its workers; nil of any other.
function Schedule.crashes_of_suspect(id)
  return Schedule.has_suspects() and tonumber(call('HGET', KEY.crashed, id) or nil) or nil
end

function Schedule.has_suspects()
  if Now.suspects == nil then Now.suspects = call('HLEN', KEY.crashed) end
  return Now.suspects > 0
end

function Schedule.suspect_is_in_flight()
  local message = Now.suspect ~= '' and Message.peek(Now.suspect)
  if not message or not message.token or not Message.OPEN[message.state] then return false end
  return Schedule.crashes_of_suspect(message.id) ~= nil
end

function Schedule.line_at(name)
  local key, level = string.match(name, '^(.+)%z(%d+)$')
  local lane = Lane.at(key)
  level = tonumber(level)
  return lane, level, lane.lines[level]
end

function Schedule.is_on_offer()
  if Now.offered == '' then return false end
  local lane, _, line = Schedule.line_at(Now.offered)
  return line ~= nil and line.place == Place.READY and not lane.flight, lane
end

-- Whether a suspect could be made ready: none is in flight, and none is ready.
function Schedule.needs_offer()
  return Schedule.has_suspects() and call('ZCARD', KEY.suspects) > 0 and not Schedule.suspect_is_in_flight()
    and not Schedule.is_on_offer()
end

function Schedule.can_send(id, serves)
  local bot = Lane.bot_at(id)
  return (serves == nil or serves[id] == true) and (bot.closed or 0) <= Now.time and (bot.away or 0) <= Now.time
    and not Schedule.is_probed(bot)
    and not bot.paused
end

-- Makes the suspect with the fewest crashes ready if none is in flight: so a crash counts against one of them. One whose
-- bot cannot send now does not keep those of other bots waiting.
function Schedule.offer_suspect(serves)
  if not Schedule.has_suspects() or Schedule.suspect_is_in_flight() then return end
  local ready, its_lane = Schedule.is_on_offer()
  if ready and Schedule.can_send(its_lane.bot, serves) then return end
  for _, name in ipairs(call('ZRANGE', KEY.suspects, 0, Bound.SUSPECTS - 1)) do
    if serves == nil or serves[string.match(name, '^%d+')] then
      local lane, level, line = Schedule.line_at(name)
      Line.leave_ready(lane, level, line)
      Schedule.make_ready(lane, level, line)
      if Schedule.can_send(lane.bot, serves) then
        Now.offered = name
        return
      end
    end
  end
end

function Schedule.become_ready(lane, level, line)
  local crashes = level < Level.TURN and Schedule.crashes_of_suspect(line.id)
  if crashes then
    line.place = Place.SUSPECT
    call('ZADD', KEY.suspects, crashes * 10 ^ Prelude.DIGITS + line.seq, lane.key .. '\0' .. level)
  else
    Schedule.make_ready(lane, level, line)
  end
end

function Schedule.make_ready(lane, level, line)
  local pool = Lane.pool_for(lane, line.paid)
  line.place = Place.READY
  Share.join(pool, level)
  Line.join_ready(lane, level, line, pool)
  if pool.wake <= Now.time or level == Level.HIGH or level >= Level.URGENT then Schedule.activate(pool) end
end

-- Whether nothing at all stands in the way, which is the usual case and quick to see.
function Schedule.is_free(lane, line)
  if lane.flight or lane.paused or lane.bury or lane.closed then return false end
  if lane.reserved or lane.learned or lane.moving or lane.arriving or line.retry then return false end
  if Now.restarted + 3600 > Now.time or (lane.full or 0) > Now.time then return false end
  for i = 1, #lane.open do
    if lane.open[i].held > 0 or lane.open[i].sum > 0 then return false end
  end
  return true
end

-- Decides whether a line is ready, waits until a known time, or is blocked by its own lane.
function Schedule.place(lane, level, line)
  Line.leave_ready(lane, level, line)
  if line.id == nil then
    line.place, line.passed = nil, nil
    return
  end
  if Schedule.is_free(lane, line) then return Schedule.become_ready(lane, level, line) end
  local held = (lane.paused or lane.bury) and level < Level.TURN
  if held then Schedule.unreserve(lane, level, line, Lane.pool_for(lane, line.paid)) end
  if held or lane.flight or lane.moving or not Schedule.unbarred(lane, level)
    or Schedule.waits_for_arrivals(lane, level, line) then
    line.place = Place.BLOCKED
    return
  end
  local till = math.max(line.retry or 0, lane.closed or 0)
  if Schedule.stands_back(lane, level) then till = math.max(till, lane.reserved_until or 0) end
  if line.cost > 0 and level ~= Level.URGENT then
    till = math.max(till, Now.time + Schedule.lane_wait(lane, level, line), Lane.forgotten_until(lane))
  end
  if till == NEVER then
    line.place = Place.BLOCKED
  elseif till > Now.time then
    line.place, line.wake = Place.WAITING, till
    Timers.set(till, 'L', lane.key .. '\0' .. level)
  else
    Schedule.become_ready(lane, level, line)
  end
end

-- Places the lines of a lane after a call is over.
function Schedule.settle_lane(lane)
  local empty = true
  for level, line in pairs(lane.lines) do
    -- Actions are unordered: another call may have given back the slots that this line waits for.
    if line.place == nil or line.place == Place.BLOCKED or (lane.kind == 'action' and line.place == Place.WAITING) then
      Schedule.place(lane, level, line)
    end
    if line.id then empty = false end
  end
  if empty then Lane.rest(lane) end
end

function Schedule.current_chat(bot, chat)
  if Lane.is_private(chat) then return chat end -- users keep their ids
  for _ = 1, 10 do
    local known = call('HGET', KEY.aliases, bot .. '/' .. chat)
    if not known then break end
    chat = known
  end
  return chat
end

-- The lane of an entry: its chat may have migrated while it was not in line.
function Schedule.lane_of(entry)
  local bot, kind, chat = string.match(entry.lane, '^([^/]+)/([^/]+)/(.+)$')
  local current = Schedule.current_chat(bot, chat)
  if current ~= chat then
    entry.chat = entry.chat or chat
    entry.lane = Lane.key(bot, kind, current)
  end
  return Lane.at(entry.lane)
end

-- Adds an entry to the end of its line.
function Schedule.join(entry)
  local lane = Schedule.lane_of(entry)
  entry.seq = Store.next_number()
  local line = Lane.line(lane, entry.level)
  Line.append(lane, entry.level, line, entry)
  if line.place == nil then Schedule.place(lane, entry.level, line) end
end

-- Puts an entry back to the head of its line, to go at `at`. `settle_lane` places the line.
function Schedule.again(entry, at)
  entry.retry = at
  local lane = Lane.at(entry.lane)
  local line = Lane.line(lane, entry.level)
  Line.push_front(lane, entry.level, line, entry)
  line.place = Place.BLOCKED
end

-- Moves a waiting message to the line of another level, which is in order of arrival then. One that is not due yet joins
-- that line later.
function Schedule.change_level(message, level)
  if (message.seq or 0) == 0 then
    message.level = level
    return
  end
  Schedule.remove(message)
  message.level = level
  local lane = Lane.at(message.lane)
  local line = Lane.line(lane, level)
  local first, pool = line.id, Lane.pool_for(lane, line.paid)
  Line.sort(lane, level, line)
  Line.insert(lane, level, line, message)
  if first and line.id ~= first then Schedule.unreserve(lane, level, line, pool) end
  Schedule.place(lane, level, line)
end

-- Takes a waiting entry out of its line.
function Schedule.remove(entry)
  if (entry.seq or 0) == 0 then -- it is not due yet
    call('ZREM', KEY.timers, 'J' .. entry.number .. ' ' .. entry.id)
    return
  end
  local lane = Lane.at(entry.lane)
  local line = lane.lines[entry.level]
  if line == nil then return end
  local pool = Lane.pool_for(lane, entry.paid)
  if Line.take_out(lane, entry.level, line, entry) then
    Schedule.unreserve(lane, entry.level, line, pool)
    Schedule.place(lane, entry.level, line)
  end
  if not Lane.has_lines(lane) then Lane.rest(lane) end
end

-- A call is over, its answer came `at`: its slots cool, or are free at once if it was never sent.
function Schedule.release(entry, lane, at, sent, answered)
  local pool = Lane.pool_for(lane, entry.paid)
  if lane.flight == entry.id then lane.flight = nil end
  if Lane.bot_at(lane.bot).probe == entry.id then
    Lane.bot_at(lane.bot).probe = nil
    Schedule.activate_all(lane.bot)
  end
  if entry.cost > 0 and not entry.cooled then
    if sent then
      Lane.each_window(lane, pool, Window.answered, at, entry.cost, Now.time)
    else
      Lane.each_window(lane, pool, Window.give_back, entry.cost)
    end
    local share = Share.of(entry.level)
    if not sent and (share == Level.NORMAL or share == Level.LOW) then
      pool.spaced = pool.spaced - Share.spacing(pool, entry.cost)
    end
  elseif entry.cost > 0 and answered then
    Lane.each_window(lane, pool, Window.answered_late, at, entry.cost, Now.time)
  end
  entry.token, entry.cooled, lane.last = nil, nil, at
  if not sent or pool.asleep then Schedule.activate(pool) end
end

-- No answer came for too long: the slots cool from now on, the entry stays in flight.
function Schedule.cool(entry)
  if entry.cost == 0 or entry.cooled then return end
  entry.cooled = true
  local lane = Lane.at(entry.lane)
  local pool = Lane.pool_for(lane, entry.paid)
  Lane.each_window(lane, pool, Window.answered, Now.time, entry.cost, Now.time)
  if pool.asleep then Schedule.activate(pool) end
  Store.count('uncertain', 1)
end

function Schedule.hold(lane, pool, level, cost)
  if level == Level.URGENT and not Lane.each_window(lane, pool, Window.fits, cost) then Store.count('urgent', 1) end
  Lane.each_window(lane, pool, Window.take, cost)
end

function Schedule.grant(pool, lane, level, line)
  local entry = Message.entry(line.id)
  Line.pop(lane, level, line)
  line.passed = nil
  if lane.reserved == level then
    lane.reserved = nil
    for other, others_line in pairs(lane.lines) do
      if other >= Level.TURN and others_line.place == Place.WAITING then
        others_line.place = Place.BLOCKED -- it let this line go first: `settle_lane` places it
      end
    end
  end
  if pool.reserved == lane.key .. '\0' .. level then pool.reserved = nil end
  entry.lane, entry.level = lane.key, level -- whatever its bytes say
  if entry.cost > 0 then Schedule.hold(lane, pool, level, entry.cost) end
  entry.token, entry.retry = Store.next_number(), nil
  if (entry.crashes or 0) >= CONSTANT.SUSPECT_CRASHES then Now.suspect = entry.id end
  Store.later('ZADD', KEY.leases, Now.time + terms.lease, entry.id)
  if level < Level.TURN and Lane.bot_at(pool.bot).obstacle then Lane.bot_at(pool.bot).probe = entry.id end
  Share.account(pool, level, entry.cost)
  if lane.kind == 'action' then -- unordered: several may be in flight
    Schedule.place(lane, level, line)
  else
    lane.flight = entry.id
    if line.id then line.place = Place.BLOCKED else line.place = nil end
  end
  return entry
end

-- Whether the conditions under which the line became ready still hold.
function Schedule.may(lane, level, line)
  if lane.flight or ((lane.paused or lane.bury) and level < Level.TURN) then return false end
  if lane.moving or Schedule.waits_for_arrivals(lane, level, line) then return false end
  if level < Level.TURN and Schedule.crashes_of_suspect(line.id) and Schedule.suspect_is_in_flight() then return false end
  if (lane.closed or 0) > Now.time or not Schedule.unbarred(lane, level) then return false end
  if Schedule.stands_back(lane, level) and (lane.reserved_until or 0) > Now.time then return false end
  if line.cost > 0 and level ~= Level.URGENT then
    if Lane.forgotten_until(lane) > Now.time then return false end
    for i = 1, Lane.limits_of(lane, level) do
      if not Window.fits(lane.open[i], lane.rates[i], line.cost) then return false end
    end
  end
  return true
end

-- Others may go where this line does not fit, a few times; then slots are reserved for it.
function Schedule.pass_over(pool, lane, level, line)
  line.passed = (line.passed or 0) + 1
  local till = Now.time + math.min(Window.wait(pool.open[1], pool.rates[1], line.cost, Now.time), pool.rates[1][2])
  if line.passed >= CONSTANT.SKIPS_BEFORE_RESERVATION then
    pool.reserved = lane.key .. '\0' .. level
    Schedule.sleep(pool, till)
    return false
  end
  Line.leave_ready(lane, level, line)
  line.place, line.wake = Place.WAITING, till
  Timers.set(till, 'L', lane.key .. '\0' .. level)
  return true
end

-- Grants the next entry of a pool. If there is none now, the pool sleeps, unless only room is lacking. Without `messages`
-- only turns are considered; without `room`, a message that is next is left to the workers that wait for it.
function Schedule.take(pool, messages, room)
  local bot = Lane.bot_at(pool.bot)
  local closed = bot.closed or 0
  if pool.rule then closed = math.max(closed, Now.forgotten_until + pool.rates[1][2], pool.full or 0) end
  if closed > Now.time then
    Schedule.sleep(pool, closed)
    return nil
  end
  if pool.rule then Flood.step_up(pool) end
  local away = bot.obstacle and ((bot.away or 0) > Now.time or Schedule.is_probed(bot))
  local willing = messages and not away and not bot.paused
  while Now.looked < Bound.LINES do
    Now.looked = Now.looked + 1
    local key, level = Share.next_line(pool, willing)
    if key == nil then
      local till = Share.rest_until(pool)
      -- A probe that is in flight ends with its lease at the latest.
      if till == 0 and away then till = bot.away > Now.time and bot.away or Now.time + terms.lease end
      if room or till > 0 then Schedule.sleep(pool, till) end -- else there may be room for messages soon
      return nil
    end
    local lane = Lane.at(key)
    local line = lane.lines[level]
    local id = line.id
    if level < Level.TURN and not room then return nil end
    local entry = Message.entry(id)
    if line.id ~= id then -- it could not be read, and is dead
      Schedule.place(lane, level, line)
    elseif entry == nil or (entry.state and not Message.waits(entry)) then -- or this Redis evicts data when it is full
      Line.pop(lane, level, line)
      Schedule.place(lane, level, line)
    elseif not Schedule.may(lane, level, line) then
      Schedule.place(lane, level, line)
    elseif pool.rule and line.cost > 0 and level ~= Level.URGENT
      and not Window.fits(pool.open[1], pool.rates[1], line.cost) then
      if Window.free(pool.open[1], pool.rates[1]) <= 0 then
        Schedule.sleep(pool, Now.time + Window.wait(pool.open[1], pool.rates[1], 1, Now.time))
        return nil
      end
      if not Schedule.pass_over(pool, lane, level, line) then return nil end
    else
      return Schedule.grant(pool, lane, level, line)
    end
  end
  return nil
end

-- Grants what may go now: up to `room` messages of the bots that the caller `serves` (nil: of all), and every turn. Bots
-- alternate.
function Schedule.grant_round(room, serves)
  local granted, tried = {}, 0
  if room > 0 then Schedule.offer_suspect(serves) end
  local round = call('ZRANGE', KEY.active, 0, Bound.POOLS - 1)
  while tried < #round and Now.looked < Bound.LINES and (room > 0 or Now.waiting_turns > 0) do
    local pool = Lane.pool_at(round[1])
    local fits = room > 0 and (serves == nil or serves[pool.bot] == true)
    local entry = Schedule.take(pool, fits or Now.claimers > Now.time, fits)
    table.remove(round, 1)
    if pool.active then round[#round + 1] = pool.key end
    if entry then
      granted[#granted + 1], tried = entry, 0
      if entry.level >= Level.TURN then Now.waiting_turns = Now.waiting_turns - 1 else room = room - 1 end
    elseif pool.active then -- it has only messages, and there is no room for them
      tried = tried + 1
    end
    if room > 0 then Schedule.offer_suspect(serves) end -- the one on offer may have had to wait
    if #round == 0 then round = call('ZRANGE', KEY.active, 0, Bound.POOLS - 1) end -- some were activated meanwhile
  end
  if #round > 1 then -- the next round begins where this one ended
    local order = {}
    for _, key in ipairs(round) do
      order[#order + 1], order[#order + 2] = Store.next_number(), key
    end
    Prelude.call_many('ZADD', KEY.active, order)
  end
  return granted
end

-- Whether a call fits, and no call that Redis has forgotten may be in the window.
function Schedule.fits_by_now(window, rate, cost)
  return (rate[3] or Now.forgotten_until + rate[2] <= Now.time) and Window.fits(window, rate, cost)
end

-- Grants a turn that has no rival, without a line: the usual case of a direct call.
function Schedule.grant_at_once(turn, lane)
  local pool, cost = Lane.pool_for(lane, turn.paid), turn.cost
  local bot = Lane.bot_at(lane.bot)
  if (lane.closed or 0) > Now.time or (bot.closed or 0) > Now.time or lane.flight or pool.reserved then return false end
  if pool.learned or lane.learned or lane.arriving or Lane.has_lines(lane) then return false end
  for _, waiting in pairs(pool.ready) do
    if waiting > 0 then return false end
  end
  if turn.level ~= Level.TURN and Now.time < pool.spaced then return false end
  if math.max(lane.full or 0, pool.full or 0) > Now.time then return false end
  if pool.rule and not Schedule.fits_by_now(pool.open[1], pool.rates[1], cost) then return false end
  for i = 1, Lane.limits_of(lane, turn.level) do
    if not Schedule.fits_by_now(lane.open[i], lane.rates[i], cost) then return false end
  end
  Schedule.hold(lane, pool, turn.level, cost)
  turn.token = Store.next_number()
  Share.join(pool, turn.level)
  Share.account(pool, turn.level, cost)
  if lane.kind ~= 'action' then lane.flight = turn.id end
  Store.later('ZADD', KEY.leases, Now.time + terms.lease, turn.id)
  return true
end

-- Whether entries that came before the first one of a line are still on their way from a lane that moves here.
function Schedule.waits_for_arrivals(lane, level, line)
  for key in pairs(lane.arriving or Store.NOTHING) do
    local first = Lane.at(key).lines[level]
    if first and first.id and first.seq < line.seq then return true end
  end
  return false
end

-- Moves the first entry of a line, to its place in order of arrival.
function Schedule.move_first(lane, level, line, target)
  local entry, into = Line.head(line), Lane.line(target, level)
  local kept = Message.entry(entry.id)
  if line.id ~= entry.id then return end -- it could not be read, and is dead
  if kept then
    kept.chat = kept.chat or lane.chat
    kept.lane = target.key
  end
  Line.pop(lane, level, line)
  Line.insert(target, level, into, entry)
end

-- Moves a part of the entries of a lane that has another id: there may be more than one step may move. A timer that any
-- process acts on moves the next part. Until the last one has moved, the lane sends nothing, and the target sends nothing
-- that came after what is left.
function Schedule.move_some(lane)
  local target = Lane.at(Lane.key(lane.bot, lane.kind, Schedule.current_chat(lane.bot, lane.moving)))
  local left = Bound.MOVE
  for level, line in pairs(lane.lines) do
    Line.leave_ready(lane, level, line)
    Line.leave_ready(target, level, Lane.line(target, level))
    if line.id then
      Line.sort(lane, level, line)
      Line.sort(target, level, target.lines[level])
    end
    while line.id and left > 0 do
      Schedule.move_first(lane, level, line, target)
      left = left - 1
    end
    line.place = line.id and Place.BLOCKED or nil
  end
  target.arriving = target.arriving or {}
  if Lane.has_lines(lane) then
    target.arriving[lane.key] = true
    Timers.set(Now.time, 'M', lane.key)
  else
    target.arriving[lane.key], lane.moving = nil, nil
    if next(target.arriving) == nil then target.arriving = nil end
    Lane.rest(lane)
  end
  for level, into in pairs(target.lines) do Schedule.place(target, level, into) end
  if not Lane.has_lines(target) then Lane.rest(target) end
end

-- The chat of a lane has another id: its entries wait in the target lane, in order of arrival. It is the same chat:
-- cooling slots, closures and pauses move as well, and so do entries that are on their way here.
function Schedule.move_lane(lane, chat)
  if chat == lane.chat then return end
  local target = Lane.at(Lane.key(lane.bot, lane.kind, chat))
  target.paused = target.paused or lane.paused
  target.closed = math.max(target.closed or 0, lane.closed or 0)
  for i, window in ipairs(lane.open) do
    Window.merge(target.open[i], window)
  end
  for key in pairs(lane.arriving or Store.NOTHING) do
    target.arriving = target.arriving or {}
    target.arriving[key] = true
  end
  if lane.learned then call('HDEL', KEY.learned, Lane.learned_name(lane)) end
  lane.paused, lane.closed, lane.learned, lane.arriving = nil, nil, nil, nil
  lane.moving = chat
  Schedule.move_some(lane)
end

-- A chat has another id from now on: its lane moves there, and later messages follow.
function Schedule.alias(lane, chat)
  chat = Schedule.current_chat(lane.bot, chat)
  if chat == lane.chat or Lane.is_private(lane.chat) then return end
  call('HSET', KEY.aliases, lane.bot .. '/' .. lane.chat, chat)
  if call('HLEN', KEY.aliases) > CONSTANT.ALIASES_KEPT then
    call('HDEL', KEY.aliases, call('HRANDFIELD', KEY.aliases))
  end
  Schedule.move_lane(lane, chat)
end

-- Lanes, pools and bots: read when a step first asks for them, written back when it ends.
--
-- A lane is one chat of one bot, for one kind of call; a line is one priority of a lane. The first entry of a line is
-- kept in its lane, the others in the queue, ordered by line and number. A pool is what the lanes of a bot share.

function Lane.bot_at(id)
  local bot = Now.bots[id]
  if bot == nil then
    local stored = call('HGET', KEY.bots, id)
    bot = stored and unpack_one(stored) or {}
    Now.bots[id] = bot
    Now.new_bots[id] = not stored
  end
  return bot
end

function Lane.is_private(chat)
  return string.find(chat, '^%d') ~= nil
end

-- The limits of a chat of a bot, or of the bot, and whether they are its own: `kind` is private, group or bot. Own ones
-- are kept with the bot as rates; those of replies follow from that of the chat, as in `Rules.replies`.
function Lane.rules_of(own, kind)
  local rate = own and own[kind]
  if not rate then return kind == 'bot' and { terms.bot } or terms[kind], false end
  local rules = { rate }
  if kind == 'private' and terms.burst > rate[1] then
    rules = { { terms.burst, rate[2] * terms.burst / rate[1], Window.part(terms.burst) }, rate }
  end
  return rules, true
end

function Lane.same_rules(some, others)
  if #some ~= #others then return false end
  for i, rate in ipairs(some) do
    if rate[1] ~= others[i][1] or rate[2] ~= others[i][2] or rate[3] ~= others[i][3] then return false end
  end
  return true
end

-- Opens the windows of a lane or pool. They were stored under `limited.under`, or else under the rules of the settings:
-- where those that hold are others, they are reshaped. `limited.full`: until then, calls may count that nobody knows.
function Lane.open_windows(limited, stored, kind)
  local bot = Lane.bot_at(limited.bot)
  local rules, is_own = Lane.rules_of(bot.own, kind)
  local under = limited.under or Lane.rules_of(nil, kind)
  limited.rule, limited.rates, limited.open = rules[1], {}, {}
  limited.full = bot.full and bot.full[kind]
  local changed = (limited.under or is_own) and not Lane.same_rules(under, rules)
  for i, rate in ipairs(rules) do
    limited.rates[i] = rate
    if changed and stored then
      local from = i < #rules and 1 or #under -- the average is always the last one
      local memory = under[from][2]
      if from == 1 and limited.learned then memory = math.min(memory, Learned.rate(limited.learned, under[1])[2]) end
      limited.open[i] = Window.reshape(stored[from], under[from], memory, rate, Now.time)
    else
      limited.open[i] = Window.open(stored and stored[i], Now.time)
    end
  end
  limited.under = is_own and rules or nil
  if changed and limited.learned then
    limited.learned = Learned.rebased(limited.learned, under[1], rules[1])
    if limited.learned then
      Lane.apply_learned(limited)
      Flood.publish(limited)
    else
      call('HDEL', KEY.learned, Lane.learned_name(limited))
    end
  end
  Lane.apply_learned(limited)
end

function Lane.apply_learned(limited)
  if limited.learned then limited.rates[1] = Learned.rate(limited.learned, limited.rule) end
end

-- There is a lane for each chat, and each is read and written often: so they are stored as flat lists. Rare fields are
-- in a table of their own.
Lane.RARE = {
  'closed', 'paused', 'learned', 'reserved', 'reserved_until', 'bury',
  'under', -- the limits of its bot's own that its windows were stored under
  'moving', -- the id that the chat has by now, while entries wait here still
  'arriving', -- the keys of the lanes that move here
}
Lane.LINE = 10 -- values of each line

function Lane.parse(stored)
  local rare, last, flight, windows, values = unpack_one(stored)
  local lines = {}
  for i = 1, #values, Lane.LINE do
    lines[values[i]] = {
      place = values[i + 1] or nil, wake = values[i + 2], passed = values[i + 3] or nil, more = values[i + 4] or nil,
      id = values[i + 5], seq = values[i + 6], cost = values[i + 7], paid = values[i + 8] or nil,
      retry = values[i + 9] or nil,
    }
  end
  return rare, last, flight, windows, lines
end

function Lane.text(lane)
  local values, rare = Store.NOTHING, false
  for level, line in pairs(lane.lines) do
    if line.id then
      local its = {
        level, line.place or false, line.wake or false, line.passed or false, line.more or false, line.id, line.seq,
        line.cost, line.paid or false, line.retry or false,
      }
      if values == Store.NOTHING then
        values = its
      else
        for i = 1, Lane.LINE do values[#values + 1] = its[i] end
      end
    end
  end
  if lane.closed or lane.paused or lane.learned or lane.reserved or lane.bury or lane.under or lane.moving
    or lane.arriving then
    rare = {}
    for _, name in ipairs(Lane.RARE) do rare[name] = lane[name] end
  end
  return pack(rare, lane.last or false, lane.flight or false, Lane.stored_windows(lane) or false, values)
end

function Lane.at(key)
  local lane = Now.lanes[key]
  if lane then return lane end
  local bot, kind, chat = string.match(key, '^(%d+)/(%l+)/(.+)$')
  local stored = call('HGET', KEY.lanes, key)
  local rare, last, flight, windows, lines
  if stored then rare, last, flight, windows, lines = Lane.parse(stored) end
  lane = {
    key = key, bot = bot, kind = kind, chat = chat, last = last or nil, flight = flight or nil, lines = lines or {},
    rule = nil, rates = nil, open = nil, pool = nil, closed = nil,
  }
  if rare then
    for name, value in pairs(rare) do lane[name] = value end
  end
  Lane.open_windows(lane, windows, kind == 'action' and 'actions' or Lane.is_private(chat) and 'private' or 'group')
  Now.lanes[key] = lane
  return lane
end

function Lane.key(bot, kind, chat)
  return bot .. '/' .. kind .. '/' .. chat
end

function Lane.line(lane, level)
  local line = lane.lines[level]
  if line == nil then
    line = { place = nil, wake = nil, passed = nil, more = nil, id = nil, seq = nil, cost = nil }
    lane.lines[level] = line
  end
  return line
end

function Lane.pool_at(key)
  local pool = Now.pools[key]
  if pool then return pool end
  local stored = call('HGET', KEY.pools, key)
  pool = stored and unpack_one(stored) or {}
  pool.key = key
  local budget
  pool.bot, budget = string.match(key, '^([^/]+)/(.+)$')
  if budget == 'paid' then
    pool.rule, pool.rates = terms.paid, { terms.paid }
    pool.open = { Window.open(pool.windows and pool.windows[1], Now.time) }
    Lane.apply_learned(pool)
  elseif budget ~= 'action' then
    Lane.open_windows(pool, pool.windows or nil, 'bot')
  end
  pool.passes = pool.passes or { 0, 0, 0 }
  pool.served, pool.spaced, pool.wake = pool.served or 0, pool.spaced or 0, pool.wake or 0
  pool.ready = pool.ready or {} -- how many lines may go, by level
  pool.fetched = {} -- the first few of them
  Now.pools[key] = pool
  return pool
end

function Lane.pool_for(lane, paid)
  if paid then return Lane.pool_at(lane.bot .. '/paid') end
  if lane.pool == nil then lane.pool = Lane.pool_at(lane.bot .. '/' .. lane.kind) end
  return lane.pool
end

-- Calls `act` for every window that a call of this lane has to fit into. Stops, and returns false, where `act` does.
function Lane.each_window(lane, pool, act, ...)
  if pool.rule and act(pool.open[1], pool.rates[1], ...) == false then return false end
  for i, window in ipairs(lane.open) do
    if act(window, lane.rates[i], ...) == false then return false end
  end
  return true
end

-- Whether replies to the chat may exceed its average: their window is the first, the average the second.
function Lane.bursts(lane)
  return lane.rule[3]
end

-- How many of its windows a call of this level has to fit into. It takes slots in all of them. There are no bursts while
-- Redis may have forgotten the latest ones.
function Lane.limits_of(lane, level)
  local reply = level == Level.HIGH or level == Level.TURN
  if Lane.bursts(lane) and reply and Now.forgotten_until + lane.rule[2] <= Now.time then return 1 end
  return #lane.open
end

-- When calls that Redis may have forgotten do not count any more. Those of a burst are made up for by `limits_of`.
function Lane.forgotten_until(lane)
  local seconds = Lane.bursts(lane) and lane.rates[2][2] or Lane.longest(lane)
  return math.max(Now.forgotten_until + seconds, lane.full or 0)
end

function Lane.longest(lane)
  local seconds = 0
  for _, rate in ipairs(lane.rates) do seconds = math.max(seconds, rate[2]) end
  return seconds
end

function Lane.stored_windows(limited)
  local stored, any = {}, false
  for i, window in ipairs(limited.open or {}) do
    local one = Window.stored(window)
    stored[i], any = one or false, any or one ~= nil
  end
  return any and stored or nil
end

function Lane.has_lines(lane)
  for _, line in pairs(lane.lines) do
    if line.id then return true end
  end
  return false
end

-- A lane can be forgotten when nothing waits, nothing is in flight, and nothing has to be remembered.
function Lane.is_idle(lane)
  return not lane.flight
    and not lane.paused
    and not lane.bury
    and not lane.moving
    and not lane.arriving
    and (lane.closed or 0) <= Now.time
    and not Lane.has_lines(lane)
    and Lane.stored_windows(lane) == nil
    and (lane.learned == nil or Learned.stale(lane.learned, Now.time))
end

function Lane.learned_name(limited)
  return limited.chat and limited.bot .. '/' .. limited.chat or limited.bot
end

function Lane.save_all()
  for key, lane in pairs(Now.lanes) do
    if Lane.is_idle(lane) then
      Store.later('HDEL', KEY.lanes, key)
      if lane.learned then Store.later('HDEL', KEY.learned, Lane.learned_name(lane)) end
    else
      if (lane.closed or 0) <= Now.time then lane.closed = nil end
      Store.later('HSET', KEY.lanes, key, Lane.text(lane))
    end
  end
end

function Lane.save_pools()
  for key, pool in pairs(Now.pools) do
    Store.later('HSET', KEY.pools, key, pack({
      windows = Lane.stored_windows(pool),
      passes = pool.passes,
      served = pool.served,
      spaced = pool.spaced,
      reserved = pool.reserved,
      learned = pool.learned,
      under = pool.under,
      wake = pool.wake,
      ready = pool.ready,
      active = pool.active,
      asleep = pool.asleep,
    }))
  end
end

function Lane.save_bots()
  for id, bot in pairs(Now.bots) do
    if next(bot) == nil then
      if not Now.new_bots[id] then Store.later('HDEL', KEY.bots, id) end
    else
      Store.later('HSET', KEY.bots, id, pack(bot))
    end
  end
end

-- A lane that has nothing to do is examined later, and forgotten if it is idle then.
function Lane.rest(lane)
  Store.later('ZADD', KEY.resting, Now.time + Lane.longest(lane), lane.key)
end

-- The member of `queue` for an entry that is not first in its line. Members sort by line and number; cost, paid and
-- retry follow, unless they are the usual ones.
function Line.member(lane, level, entry)
  local details = ''
  if entry.cost ~= 1 or entry.paid or entry.retry then
    details = entry.cost .. ' ' .. (entry.paid and 1 or 0) .. ' ' .. Prelude.exact(entry.retry or 0)
  end
  return lane.key .. '\0' .. level .. '\0' .. entry.seq .. '\0' .. details .. '\0' .. entry.id
end

function Line.range(lane, level)
  local line = lane.key .. '\0' .. level
  return '[' .. line .. '\0', '(' .. line .. '\1'
end

function Line.parse(member)
  local seq, details, id = string.match(member, '^[^%z]+%z%d%z(%d+)%z([^%z]*)%z(.+)$')
  if details == '' then return { id = id, seq = tonumber(seq), cost = 1 } end
  local cost, paid, retry = string.match(details, '^(%d+) (%d) (.+)$')
  retry = tonumber(retry)
  return {
    id = id, seq = tonumber(seq), cost = tonumber(cost), paid = paid == '1' or nil, retry = retry > 0 and retry or nil,
  }
end

function Line.ready_member(pool, level, seq, key)
  return pool.key .. '\0' .. level .. '\0' .. seq .. '\0' .. key
end

-- The first line of a level that may go: its number, and the key of its lane. Several are fetched at once.
function Line.first_ready(pool, level)
  if (pool.ready[level] or 0) <= 0 then return nil end
  local batch = pool.fetched[level]
  if batch == nil or batch.at > #batch then
    local name = pool.key .. '\0' .. level
    batch = call('ZRANGEBYLEX', KEY.ready, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 32)
    batch.at, batch.number, batch.key = 1, #name + 2, #name + 3 + Prelude.DIGITS
    pool.fetched[level] = batch
  end
  local member = batch[batch.at]
  return tonumber(string.sub(member, batch.number, batch.key - 2)), string.sub(member, batch.key)
end

function Line.join_ready(lane, level, line, pool)
  call('ZADD', KEY.ready, 0, Line.ready_member(pool, level, line.seq, lane.key))
  pool.ready[level] = (pool.ready[level] or 0) + 1
  pool.fetched[level] = nil
end

function Line.leave_ready(lane, level, line)
  if line.place == Place.SUSPECT then
    call('ZREM', KEY.suspects, lane.key .. '\0' .. level)
    line.place = Place.BLOCKED
  end
  if line.place ~= Place.READY then return end
  local pool = Lane.pool_for(lane, line.paid)
  local member = Line.ready_member(pool, level, line.seq, lane.key)
  call('ZREM', KEY.ready, member)
  pool.ready[level] = pool.ready[level] - 1
  local batch = pool.fetched[level]
  if batch and batch[batch.at] == member then
    batch.at = batch.at + 1
  else
    pool.fetched[level] = nil
  end
  line.place = Place.BLOCKED
end

function Line.lead(line, entry)
  line.id, line.seq, line.cost, line.paid, line.retry = entry.id, entry.seq, entry.cost, entry.paid, entry.retry
end

function Line.head(line)
  return { id = line.id, seq = line.seq, cost = line.cost, paid = line.paid, retry = line.retry }
end

function Line.append(lane, level, line, entry)
  if line.id == nil then
    Line.lead(line, entry)
  else
    call('ZADD', KEY.queue, 0, Line.member(lane, level, entry))
    line.more = (line.more or 0) + 1
  end
end

function Line.push_front(lane, level, line, entry)
  Line.leave_ready(lane, level, line)
  if line.id then
    call('ZADD', KEY.queue, 0, Line.member(lane, level, Line.head(line)))
    line.more = (line.more or 0) + 1
  end
  Line.lead(line, entry)
end

-- Adds an entry at its place in order of arrival. The line is in this order: see `Line.sort`.
function Line.insert(lane, level, line, entry)
  if line.id and line.seq > entry.seq then
    Line.push_front(lane, level, line, entry)
  else
    Line.append(lane, level, line, entry)
  end
end

-- Takes the first entry out; the next one leads.
function Line.pop(lane, level, line)
  Line.leave_ready(lane, level, line)
  line.id = nil
  if (line.more or 0) > 0 then
    local low, high = Line.range(lane, level)
    local member = call('ZRANGEBYLEX', KEY.queue, low, high, 'LIMIT', 0, 1)[1]
    call('ZREM', KEY.queue, member)
    line.more = line.more > 1 and line.more - 1 or nil
    Line.lead(line, Line.parse(member))
  end
end

-- Puts the first entry, which may have returned to the head of its line, to its place in order of arrival.
function Line.sort(lane, level, line)
  if line.id == nil or (line.more or 0) == 0 then return end
  Line.leave_ready(lane, level, line)
  call('ZADD', KEY.queue, 0, Line.member(lane, level, Line.head(line)))
  line.more = line.more + 1
  Line.pop(lane, level, line)
end

-- Takes a waiting entry out of its line, wherever it stands. Returns whether it was the first.
function Line.take_out(lane, level, line, entry)
  if line.id == entry.id then
    Line.pop(lane, level, line)
    return true
  end
  if call('ZREM', KEY.queue, Line.member(lane, level, entry)) == 1 then
    line.more = line.more > 1 and line.more - 1 or nil
  end
  return false
end

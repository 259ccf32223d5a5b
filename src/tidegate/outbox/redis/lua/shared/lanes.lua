-- Lanes, pools and bots: read when a step first asks for them, written back when it ends.
--
-- A lane is one chat of one bot, for one kind of budget; a line is one priority of a lane. The first entry of a line
-- is kept in its lane, the others in the queue, ordered by line and number. A pool is what the lanes of a bot share.

local Level = { HIGH = 0, NORMAL = 1, LOW = 2, URGENT = 3, TURN = 4 } -- of turns: TURN + the priority
local Place = { READY = 1, WAITING = 2, BLOCKED = 3 } -- where a line is; nil if it is empty

function Lane.bot_at(id)
  local bot = Now.bots[id]
  if bot == nil then
    local stored = call('HGET', KEY.bots, id)
    bot = stored and unpack_one(stored) or {}
    Now.bots[id] = bot
  end
  return bot
end

function Lane.is_private(chat)
  return string.find(chat, '^%d') ~= nil
end

function Lane.rules(kind, chat)
  if kind == 'action' then return terms.actions end
  return { Lane.is_private(chat) and terms.private or terms.group }
end

function Lane.rule_of_pool(budget)
  if budget == 'paid' then return terms.paid end
  if budget == 'action' then return nil end
  return terms.bot
end

function Lane.apply_learned(place)
  if place.learned then place.rates[1] = Learned.rate(place.learned, place.rule) end
end

function Lane.at(key)
  local lane = Now.lanes[key]
  if lane then return lane end
  local stored = call('HGET', KEY.lanes, key)
  lane = stored and unpack_one(stored) or {}
  lane.key = key
  lane.bot, lane.kind, lane.chat = string.match(key, '^([^/]+)/([^/]+)/(.+)$')
  lane.lines = lane.lines or {}
  lane.rates, lane.open = {}, {}
  for i, rule in ipairs(Lane.rules(lane.kind, lane.chat)) do
    lane.rates[i] = rule
    lane.open[i] = Window.open(lane.windows and lane.windows[i], Now.time)
  end
  lane.rule = lane.rates[1]
  Lane.apply_learned(lane)
  Now.lanes[key] = lane
  return lane
end

function Lane.key(bot, kind, chat)
  return bot .. '/' .. kind .. '/' .. chat
end

function Lane.line(lane, level)
  local line = lane.lines[level]
  if line == nil then
    line = {}
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
  pool.rule = Lane.rule_of_pool(budget)
  if pool.rule then
    pool.rates, pool.open = { pool.rule }, { Window.open(pool.windows and pool.windows[1], Now.time) }
    Lane.apply_learned(pool)
  end
  pool.passes = pool.passes or { 0, 0, 0 }
  pool.served, pool.spaced, pool.wake = pool.served or 0, pool.spaced or 0, pool.wake or 0
  pool.ready = pool.ready or {} -- lines that may go, by level
  Now.pools[key] = pool
  return pool
end

function Lane.pool_for(lane, paid)
  if paid then return Lane.pool_at(lane.bot .. '/paid') end
  if lane.pool == nil then lane.pool = Lane.pool_at(lane.bot .. '/' .. lane.kind) end
  return lane.pool
end

-- Everything a call of this lane has to fit into: pairs of a window and its rate.
function Lane.windows(lane, pool)
  local all = {}
  if pool.rule then all[1] = { pool.open[1], pool.rates[1] } end
  for i, window in ipairs(lane.open) do all[#all + 1] = { window, lane.rates[i] } end
  return all
end

function Lane.longest(lane)
  local seconds = 0
  for _, rate in ipairs(lane.rates) do seconds = math.max(seconds, rate[2]) end
  return seconds
end

function Lane.kept_windows(place)
  local kept, any = {}, false
  for i, window in ipairs(place.open or {}) do
    local one = Window.kept(window)
    kept[i], any = one or {}, any or one ~= nil
  end
  return any and kept or nil
end

function Lane.has_lines(lane)
  for _, line in pairs(lane.lines) do
    if line.id then return true end
  end
  return false
end

-- Whether a lane can be forgotten: nothing waits, nothing is in flight, nothing has to be remembered.
function Lane.is_idle(lane)
  return not lane.flight
    and not lane.paused
    and not lane.bury
    and (lane.closed or 0) <= Now.time
    and not Lane.has_lines(lane)
    and Lane.kept_windows(lane) == nil
    and (lane.learned == nil or Learned.stale(lane.learned, Now.time))
end

function Lane.learned_name(place)
  return place.chat and place.bot .. '/' .. place.chat or place.bot
end

function Lane.save_all()
  for key, lane in pairs(Now.lanes) do
    if Lane.is_idle(lane) then
      Store.later('HDEL', KEY.lanes, key)
      if lane.learned then Store.later('HDEL', KEY.learned, Lane.learned_name(lane)) end
    else
      for level, line in pairs(lane.lines) do
        if not line.id then lane.lines[level] = nil end
      end
      Store.later('HSET', KEY.lanes, key, pack({
        lines = lane.lines,
        windows = Lane.kept_windows(lane),
        closed = (lane.closed or 0) > Now.time and lane.closed or nil,
        paused = lane.paused,
        learned = lane.learned,
        reserved = lane.reserved,
        reserved_until = lane.reserved_until,
        last = lane.last,
        flight = lane.flight,
        bury = lane.bury,
      }))
    end
  end
end

function Lane.save_pools()
  for key, pool in pairs(Now.pools) do
    Store.later('HSET', KEY.pools, key, pack({
      windows = Lane.kept_windows(pool),
      passes = pool.passes,
      served = pool.served,
      spaced = pool.spaced,
      reserved = pool.reserved,
      learned = pool.learned,
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
      Store.later('HDEL', KEY.bots, id)
    else
      Store.later('HSET', KEY.bots, id, pack(bot))
    end
  end
end

-- Remember to forget a lane that has nothing to do.
function Lane.rest(lane)
  Store.later('ZADD', KEY.resting, Store.exact(Now.time + Lane.longest(lane)), lane.key)
end

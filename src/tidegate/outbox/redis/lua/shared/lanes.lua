-- Lanes, pools and bots: read when a step first asks for them, written back when it ends.
--
-- A lane is one chat of one bot, for one kind of budget; a line is one priority of a lane. The first entry of a line
-- is kept in its lane, the others in the queue, ordered by line and number. A pool is what the lanes of a bot share.

local HIGH, NORMAL, LOW, URGENT, TURN = 0, 1, 2, 3, 4 -- turns: TURN + the priority
local READY, WAITING, BLOCKED = 1, 2, 3 -- where a line is; nil if it is empty
local STRIDE = { [HIGH] = 1 / 16, [NORMAL] = 1 / 4, [LOW] = 1 }
local PATIENCE = 8 -- times a line is passed over before slots are reserved for it
local RESERVED = 1.2 -- windows for which turns let such a line go first

local lanes, pools, bots = {}, {}, {}

local function bot_at(id)
  local bot = bots[id]
  if bot == nil then
    local stored = call('HGET', KEY.bots, id)
    bot = stored and unpack_one(stored) or {}
    bots[id] = bot
  end
  return bot
end

local function is_private(chat)
  return string.find(chat, '^%d') ~= nil
end

local function rules_of_lane(kind, chat)
  if kind == 'action' then return terms.actions end
  return { is_private(chat) and terms.private or terms.group }
end

local function rule_of_pool(budget)
  if budget == 'paid' then return terms.paid end
  if budget == 'action' then return nil end
  return terms.bot
end

local function apply_learned(place)
  if place.learned then place.rates[1] = Learned.rate(place.learned, place.rule) end
end

local function lane_at(key)
  local lane = lanes[key]
  if lane then return lane end
  local stored = call('HGET', KEY.lanes, key)
  lane = stored and unpack_one(stored) or {}
  lane.key = key
  lane.bot, lane.kind, lane.chat = string.match(key, '^([^/]+)/([^/]+)/(.+)$')
  lane.lines = lane.lines or {}
  lane.rates, lane.open = {}, {}
  for i, rule in ipairs(rules_of_lane(lane.kind, lane.chat)) do
    lane.rates[i] = rule
    lane.open[i] = Window.open(lane.windows and lane.windows[i], now)
  end
  lane.rule = lane.rates[1]
  apply_learned(lane)
  lanes[key] = lane
  return lane
end

local function lane_key(bot, kind, chat)
  return bot .. '/' .. kind .. '/' .. chat
end

local function line_of(lane, level)
  local line = lane.lines[level]
  if line == nil then
    line = {}
    lane.lines[level] = line
  end
  return line
end

local function pool_at(key)
  local pool = pools[key]
  if pool then return pool end
  local stored = call('HGET', KEY.pools, key)
  pool = stored and unpack_one(stored) or {}
  pool.key = key
  local budget
  pool.bot, budget = string.match(key, '^([^/]+)/(.+)$')
  pool.rule = rule_of_pool(budget)
  if pool.rule then
    pool.rates, pool.open = { pool.rule }, { Window.open(pool.windows and pool.windows[1], now) }
    apply_learned(pool)
  end
  pool.passes = pool.passes or { 0, 0, 0 }
  pool.served, pool.spaced, pool.wake = pool.served or 0, pool.spaced or 0, pool.wake or 0
  pool.ready = pool.ready or {} -- lines that may go, by level
  pools[key] = pool
  return pool
end

local function pool_for(lane, paid)
  return pool_at(lane.bot .. '/' .. (paid and 'paid' or lane.kind))
end

-- Everything a call of this lane has to fit into: pairs of a window and its rate.
local function windows_of(lane, pool)
  local all = {}
  if pool.rule then all[1] = { pool.open[1], pool.rates[1] } end
  for i, window in ipairs(lane.open) do all[#all + 1] = { window, lane.rates[i] } end
  return all
end

local function longest(lane)
  local seconds = 0
  for _, rate in ipairs(lane.rates) do seconds = math.max(seconds, rate[2]) end
  return seconds
end

local function kept_windows(place)
  local kept, any = {}, false
  for i, window in ipairs(place.open or {}) do
    local one = Window.kept(window)
    kept[i], any = one or {}, any or one ~= nil
  end
  return any and kept or nil
end

local function has_lines(lane)
  for _, line in pairs(lane.lines) do
    if line.id then return true end
  end
  return false
end

-- Whether a lane can be forgotten: nothing waits, nothing is in flight, nothing has to be remembered.
local function is_idle(lane)
  return not lane.flight
    and not lane.paused
    and not lane.bury
    and (lane.closed or 0) <= now
    and not has_lines(lane)
    and kept_windows(lane) == nil
    and (lane.learned == nil or Learned.stale(lane.learned, now))
end

local function learned_name(place)
  return place.chat and place.bot .. '/' .. place.chat or place.bot
end

local function save_lanes()
  for key, lane in pairs(lanes) do
    if is_idle(lane) then
      later('HDEL', KEY.lanes, key)
      if lane.learned then later('HDEL', KEY.learned, learned_name(lane)) end
    else
      for level, line in pairs(lane.lines) do
        if not line.id then lane.lines[level] = nil end
      end
      later('HSET', KEY.lanes, key, pack({
        lines = lane.lines,
        windows = kept_windows(lane),
        closed = (lane.closed or 0) > now and lane.closed or nil,
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

local function save_pools()
  for key, pool in pairs(pools) do
    later('HSET', KEY.pools, key, pack({
      windows = kept_windows(pool),
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

local function save_bots()
  for id, bot in pairs(bots) do
    if next(bot) == nil then
      later('HDEL', KEY.bots, id)
    else
      later('HSET', KEY.bots, id, pack(bot))
    end
  end
end

-- Remember to forget a lane that has nothing to do.
local function rest(lane)
  later('ZADD', KEY.resting, exact(now + longest(lane)), lane.key)
end

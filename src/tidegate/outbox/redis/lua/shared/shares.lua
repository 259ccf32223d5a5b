-- Whose turn it is within a pool: priorities share by weight, the earliest first entry goes first (outbox/shares.py).

local SPACING, SLACK = 0.9, 0.02

local function share_of(level)
  return level >= TURN and level - TURN or level
end

local function parse_ready(member)
  local level, seq, key = string.match(member, '^[^%z]+%z(%d+)%z(%d+)%z(.+)$')
  return { level = tonumber(level), seq = tonumber(seq), key = key }
end

local function first_of(pool, level, messages)
  local turn = first_ready(pool, TURN + level)
  turn = turn and parse_ready(turn)
  local message = messages and first_ready(pool, level)
  message = message and parse_ready(message)
  if turn and message then return turn.seq < message.seq and turn or message end
  return turn or message or nil
end

-- Gaps are left for high ones that may come. Where some are there, the weights share the slots.
local function has_high(pool)
  return (pool.ready[HIGH] or 0) > 0 or (pool.ready[TURN] or 0) > 0
end

-- The line to go next. Without room for `messages`, only turns count.
local function next_line(pool, messages)
  if messages then
    local urgent = first_ready(pool, URGENT)
    if urgent then return parse_ready(urgent) end
    if pool.reserved then
      local key, level = string.match(pool.reserved, '^(.+)%z(%d+)$')
      level = tonumber(level)
      local line = lane_at(key).lines[level]
      if line and line.place == READY and line.id then return { key = key, level = level } end
      pool.reserved = nil
    end
  end
  if now < pool.spaced and not has_high(pool) then return nil end
  local best, lowest = nil, NEVER
  for level = HIGH, LOW do
    local line = pool.passes[level + 1] < lowest and first_of(pool, level, messages)
    if line then best, lowest = line, pool.passes[level + 1] end
  end
  return best
end

-- For a pool without a next line: the end of its gap if lines wait for that, 0 if none does.
local function rest_until(pool)
  if now >= pool.spaced or has_high(pool) then return 0 end
  for _, level in ipairs({ NORMAL, LOW, TURN + NORMAL, TURN + LOW }) do
    if (pool.ready[level] or 0) > 0 then return pool.spaced end
  end
  return 0
end

-- A line becomes ready at a level that had none: it starts from where the others are.
local function join_share(pool, level)
  if level == URGENT or (pool.ready[level] or 0) > 0 then return end
  local share = share_of(level) + 1
  pool.passes[share] = math.max(pool.passes[share], pool.served)
end

local function spacing(pool, cost)
  if not pool.rule then return 0 end
  return SPACING * cost * pool.rates[1][2] / pool.rates[1][1]
end

-- A grant: its priority has had its share, and what is spaced keeps its distance.
local function account(pool, level, cost)
  if level == URGENT then return end
  local share = share_of(level)
  pool.served = pool.passes[share + 1]
  pool.passes[share + 1] = pool.served + STRIDE[share] * math.max(cost, 1)
  if share ~= HIGH then
    local started = pool.spaced > now - SLACK and pool.spaced or now
    pool.spaced = started + spacing(pool, cost)
  end
end

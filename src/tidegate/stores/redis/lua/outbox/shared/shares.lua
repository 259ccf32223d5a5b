-- Which line of a pool goes next: priorities share by weight, the line with the earliest first entry goes first
-- (`outbox/shares.py`).

function Share.of(level)
  return level >= Level.TURN and level - Level.TURN or level
end

-- The first line of one priority: the key of its lane, and its level.
function Share.first_of(pool, level, messages)
  local turn, of_turn = Line.first_ready(pool, Level.TURN + level)
  local message, of_message
  if messages then message, of_message = Line.first_ready(pool, level) end
  if turn and not (message and message < turn) then return of_turn, Level.TURN + level end
  return of_message, level
end

-- Gaps are left for high messages that may come. Once some are there, the weights share the slots.
function Share.has_high(pool)
  return (pool.ready[Level.HIGH] or 0) > 0 or (pool.ready[Level.TURN] or 0) > 0
end

-- The line to go next: the key of its lane, and its level. Without room for `messages`, only turns count.
function Share.next_line(pool, messages)
  if messages then
    local urgent, key = Line.first_ready(pool, Level.URGENT)
    if urgent then return key, Level.URGENT end
    if pool.reserved then
      local place, level = string.match(pool.reserved, '^(.+)%z(%d+)$')
      level = tonumber(level)
      local line = Lane.at(place).lines[level]
      if line and line.place == Place.READY and line.id then return place, level end
      pool.reserved = nil
    end
  end
  if Now.time < pool.spaced and not Share.has_high(pool) then return nil end
  local best, best_level, lowest = nil, nil, NEVER
  for level = Level.HIGH, Level.LOW do
    if pool.passes[level + 1] < lowest then
      local key, its = Share.first_of(pool, level, messages)
      if key then best, best_level, lowest = key, its, pool.passes[level + 1] end
    end
  end
  return best, best_level
end

-- For a pool without a next line: the end of its gap if lines wait for that, 0 if none does.
function Share.rest_until(pool)
  if Now.time >= pool.spaced or Share.has_high(pool) then return 0 end
  for _, level in ipairs({ Level.NORMAL, Level.LOW, Level.TURN + Level.NORMAL, Level.TURN + Level.LOW }) do
    if (pool.ready[level] or 0) > 0 then return pool.spaced end
  end
  return 0
end

-- A line becomes ready at a level that had none: it starts from where the others are.
function Share.join(pool, level)
  if level == Level.URGENT or (pool.ready[level] or 0) > 0 then return end
  local share = Share.of(level) + 1
  pool.passes[share] = math.max(pool.passes[share], pool.served)
end

function Share.spacing(pool, cost)
  if not pool.rule then return 0 end
  return cost * pool.rates[1][2] / pool.rates[1][1]
end

-- After a grant, its priority has had its share, and spaced calls keep their distance.
function Share.account(pool, level, cost)
  if level == Level.URGENT then return end
  local share = Share.of(level)
  pool.served = pool.passes[share + 1]
  pool.passes[share + 1] = pool.served + CONSTANT.STRIDES[share + 1] * math.max(cost, 1)
  if share ~= Level.HIGH then
    local started = pool.spaced > Now.time - CONSTANT.SLACK and pool.spaced or Now.time
    pool.spaced = started + Share.spacing(pool, cost)
  end
end

-- The entries of a line in order, and the lines that may go in order of their first entry.

local function number_text(number)
  return string.format('%015d', number)
end

-- One that is not first in its line. Ordered by line and number; what a line has to know of it follows.
local function queue_member(lane, level, entry)
  return table.concat({
    lane.key, level, number_text(entry.seq), entry.cost, entry.paid and 1 or 0, exact(entry.retry or 0), entry.id,
  }, '\0')
end

local function queue_range(lane, level)
  local line = lane.key .. '\0' .. level
  return '[' .. line .. '\0', '(' .. line .. '\1'
end

local function parse_member(member)
  local seq, cost, paid, retry, id = string.match(member, '^[^%z]+%z%d+%z(%d+)%z(%d+)%z(%d)%z([^%z]+)%z(.+)$')
  return { id = id, seq = tonumber(seq), cost = tonumber(cost), paid = paid == '1' or nil, retry = tonumber(retry) }
end

local function ready_member(lane, level, line)
  return table.concat({ pool_for(lane, line.paid).key, level, number_text(line.seq), lane.key }, '\0')
end

local fetched = {} -- by pool and level: the first few that may go, so that not each costs a command

local function first_ready(pool, level)
  if (pool.ready[level] or 0) <= 0 then return nil end
  local name = pool.key .. '\0' .. level
  local batch = fetched[name]
  if batch == nil or batch.at > #batch then
    batch = call('ZRANGEBYLEX', KEY.ready, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 32)
    batch.at = 1
    fetched[name] = batch
  end
  return batch[batch.at]
end

local function join_ready(lane, level, line, pool)
  call('ZADD', KEY.ready, 0, ready_member(lane, level, line))
  pool.ready[level] = (pool.ready[level] or 0) + 1
  fetched[pool.key .. '\0' .. level] = nil
end

local function leave_ready(lane, level, line)
  if line.place ~= READY then return end
  local pool, member = pool_for(lane, line.paid), ready_member(lane, level, line)
  call('ZREM', KEY.ready, member)
  pool.ready[level] = pool.ready[level] - 1
  local name = pool.key .. '\0' .. level
  local batch = fetched[name]
  if batch and batch[batch.at] == member then
    batch.at = batch.at + 1
  else
    fetched[name] = nil
  end
  line.place = BLOCKED
end

local function lead(line, entry)
  line.id, line.seq, line.cost, line.paid, line.retry = entry.id, entry.seq, entry.cost, entry.paid, entry.retry
end

local function head_of(line)
  return { id = line.id, seq = line.seq, cost = line.cost, paid = line.paid, retry = line.retry }
end

local function append(lane, level, line, entry)
  if line.id == nil then
    lead(line, entry)
  else
    call('ZADD', KEY.queue, 0, queue_member(lane, level, entry))
    line.more = (line.more or 0) + 1
  end
end

local function push_front(lane, level, line, entry)
  leave_ready(lane, level, line)
  if line.id then
    call('ZADD', KEY.queue, 0, queue_member(lane, level, head_of(line)))
    line.more = (line.more or 0) + 1
  end
  lead(line, entry)
end

-- Takes the first out; the next one leads.
local function pop(lane, level, line)
  leave_ready(lane, level, line)
  line.id = nil
  if (line.more or 0) > 0 then
    local low, high = queue_range(lane, level)
    local member = call('ZRANGEBYLEX', KEY.queue, low, high, 'LIMIT', 0, 1)[1]
    call('ZREM', KEY.queue, member)
    line.more = line.more > 1 and line.more - 1 or nil
    lead(line, parse_member(member))
  end
end

-- Takes one out that waits in its line, wherever it stands.
local function take_out(lane, level, line, entry)
  if line.id == entry.id then
    pop(lane, level, line)
    return true
  end
  if call('ZREM', KEY.queue, queue_member(lane, level, entry)) == 1 then
    line.more = line.more > 1 and line.more - 1 or nil
  end
  return false
end

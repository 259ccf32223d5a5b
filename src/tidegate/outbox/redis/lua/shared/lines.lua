-- The entries of a line in order, and the lines that may go in order of their first entry.

function Line.number_text(number)
  return string.format('%015d', number)
end

-- One that is not first in its line. Ordered by line and number; what a line has to know of it follows.
function Line.member(lane, level, entry)
  return table.concat({
    lane.key, level, Line.number_text(entry.seq), entry.cost, entry.paid and 1 or 0, Store.exact(entry.retry or 0),
    entry.id,
  }, '\0')
end

function Line.range(lane, level)
  local line = lane.key .. '\0' .. level
  return '[' .. line .. '\0', '(' .. line .. '\1'
end

function Line.parse(member)
  local seq, cost, paid, retry, id = string.match(member, '^[^%z]+%z%d+%z(%d+)%z(%d+)%z(%d)%z([^%z]+)%z(.+)$')
  return { id = id, seq = tonumber(seq), cost = tonumber(cost), paid = paid == '1' or nil, retry = tonumber(retry) }
end

function Line.ready_member(lane, level, line)
  return table.concat({ Lane.pool_for(lane, line.paid).key, level, Line.number_text(line.seq), lane.key }, '\0')
end

function Line.first_ready(pool, level)
  if (pool.ready[level] or 0) <= 0 then return nil end
  local name = pool.key .. '\0' .. level
  local batch = Now.fetched[name]
  if batch == nil or batch.at > #batch then
    batch = call('ZRANGEBYLEX', KEY.ready, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 32)
    batch.at = 1
    Now.fetched[name] = batch
  end
  return batch[batch.at]
end

function Line.join_ready(lane, level, line, pool)
  call('ZADD', KEY.ready, 0, Line.ready_member(lane, level, line))
  pool.ready[level] = (pool.ready[level] or 0) + 1
  Now.fetched[pool.key .. '\0' .. level] = nil
end

function Line.leave_ready(lane, level, line)
  if line.place ~= Place.READY then return end
  local pool, member = Lane.pool_for(lane, line.paid), Line.ready_member(lane, level, line)
  call('ZREM', KEY.ready, member)
  pool.ready[level] = pool.ready[level] - 1
  local name = pool.key .. '\0' .. level
  local batch = Now.fetched[name]
  if batch and batch[batch.at] == member then
    batch.at = batch.at + 1
  else
    Now.fetched[name] = nil
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

-- Takes the first out; the next one leads.
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

-- Takes one out that waits in its line, wherever it stands.
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

-- The entries of a line in order, and the lines that may go in order of their first entry.

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

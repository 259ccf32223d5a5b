-- How every step begins and ends: what is due acts first; then turns are granted, whoever sleeps is woken if need be,
-- and everything that changed is written.

local more = false -- is due, beyond what one step may do

local function wake_line(text)
  local key, level = string.match(text, '^(.+)%z(%d+)$')
  local lane = lane_at(key)
  local line = lane.lines[tonumber(level)]
  if line and line.place == WAITING and line.wake <= now then place(lane, tonumber(level), line) end
end

local on_time = {
  L = wake_line,
  P = function(key)
    local pool = pool_at(key)
    if pool.wake > 0 and pool.wake <= now then activate(pool) end
  end,
  J = function(id)
    local message = message_at(id)
    if message and waits(message) and (message.seq or 0) == 0 then join(message) end
  end,
  E = function(id)
    local message = message_at(id)
    if message and waits(message) and message.expires and message.expires <= now then
      remove(message)
      finish(message, 'expired')
    end
  end,
  B = function(key)
    local lane = lane_at(key)
    if lane.bury then bury(lane, unpack(lane.bury)) end
  end,
}

local function due(key, limit)
  local members = call('ZRANGEBYSCORE', key, '-inf', exact(now), 'LIMIT', 0, limit)
  if #members > 0 then call_many('ZREM', key, members) end
  if #members == limit then more = true end
  return members
end

-- Let everything that is due act.
local function wake()
  for _, timer in ipairs(due(KEY.timers, TIMERS)) do
    on_time[string.sub(timer, 1, 1)](string.sub(timer, 2))
  end
  for _, id in ipairs(due(KEY.leases, LEASES)) do
    local entry = entry_of(id)
    if entry and is_turn(id) then
      lose_turn(entry)
    elseif entry and entry.token then
      after_crash(entry)
    end
  end
  for _, key in ipairs(call('ZRANGEBYSCORE', KEY.resting, '-inf', exact(now), 'LIMIT', 0, SWEEP)) do
    local lane = lane_at(key) -- one that is idle is not written back
    call('ZREM', KEY.resting, key)
    if not is_idle(lane) and not has_lines(lane) and not lane.flight then rest(lane) end
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', KEY.ended, '-inf', exact(now), 'LIMIT', 0, FORGET)) do
    call('ZREM', KEY.ended, id)
    local message = message_at(id)
    if message and not OPEN[message.state] and not LETTER[message.state] then forget(message) end
  end
end

local function tell_turns(granted)
  for _, turn in ipairs(granted) do
    if turn.owner == ME then
      answer.granted = answer.granted or {}
      answer.granted[turn.id] = turn.token
    else
      call('PUBLISH', KEY.channel, turn.owner)
    end
  end
end

-- Somebody who sleeps has to look: a worker that waits for messages, or whoever waits for a turn.
local function rouse()
  if call('LLEN', KEY.wake) == 0 then call('LPUSH', KEY.wake, 1) end
  if waiting_turns > 0 then call('PUBLISH', KEY.channel, '*') end
end

local function write_counts()
  for name, change in pairs(counted) do
    if change ~= 0 and call('HINCRBY', KEY.counts, name, change) == 0 then call('HDEL', KEY.counts, name) end
  end
end

local function write()
  for _, bot in pairs(bots) do
    if (bot.closed or 0) <= now then bot.closed = nil end
    if (bot.away or 0) <= now then bot.away, bot.obstacle = nil, nil end
  end
  save_lanes()
  save_pools()
  save_bots()
  save_all(messages, KEY.messages)
  save_all(turns, KEY.turns)
  for _, batch in pairs(changes) do call_many(batch.command, batch.key, batch) end
  write_counts()
  call('HSET', KEY.meta, 'numbers', exact(numbers), 'last', exact(now), 'offset', exact(meta.offset),
    'turns', waiting_turns, 'watch_at', exact(watch_at), 'watch_by', watch_by or '',
    'claimers', exact(claimers))
end

-- The end of every step. `watching`: the caller knows when the next one is due, and sees to it.
local function done(main, watching)
  for name, value in pairs(main or {}) do answer[name] = value end
  if waiting_turns > 0 then tell_turns(grant_round(0)) end
  if not watching and (call('ZCARD', KEY.active) > 0 or earliest < watch_at) then
    rouse()
    watch_at = math.min(watch_at, earliest)
  end
  answer.more = more or nil
  for _, message in ipairs(ended) do
    answer.ended = answer.ended or {}
    answer.ended[#answer.ended + 1] = told(message)
  end
  write()
  local reply = { pack(answer) }
  for _, text in ipairs(blobs) do reply[#reply + 1] = text end
  return reply
end

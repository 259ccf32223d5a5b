-- How every step begins and ends: due timers act first; then turns are granted, a sleeping process is woken if need be,
-- and everything that changed is written.

function Step.wake_line(text)
  local key, level = string.match(text, '^(.+)%z(%d+)$')
  local lane = Lane.at(key)
  local line = lane.lines[tonumber(level)]
  if line and line.place == Place.WAITING and line.wake <= Now.time then Schedule.place(lane, tonumber(level), line) end
end

Step.on_time = {
  L = Step.wake_line,
  P = function(key)
    local pool = Lane.pool_at(key)
    if pool.wake > 0 and pool.wake <= Now.time then Schedule.activate(pool) end
  end,
  J = function(text)
    local message = Message.at(string.match(text, '^%d+ (.+)$'))
    if message and Message.waits(message) and (message.seq or 0) == 0 then Schedule.join(message) end
  end,
  E = function(id)
    local message = Message.at(id)
    if message and Message.waits(message) and message.expires and message.expires <= Now.time then
      Schedule.remove(message)
      Message.finish(message, 'expired')
    end
  end,
  B = function(key)
    local lane = Lane.at(key)
    if lane.bury then Message.kill_lane(lane, unpack(lane.bury)) end
  end,
}

function Step.due(key, limit)
  local members = call('ZRANGEBYSCORE', key, '-inf', Now.time, 'LIMIT', 0, limit)
  if #members > 0 then Prelude.call_many('ZREM', key, members) end
  if #members == limit then Now.more = true end
  return members
end

-- Lets everything that is due act.
function Step.run_due()
  for _, timer in ipairs(Step.due(KEY.timers, Bound.TIMERS)) do
    Step.on_time[string.sub(timer, 1, 1)](string.sub(timer, 2))
  end
  for _, id in ipairs(Step.due(KEY.leases, Bound.LEASES)) do
    local entry = Message.entry(id)
    if entry and Message.is_turn(id) then
      Message.lose_turn(entry)
    elseif entry and entry.token and entry.state == 'sending' then
      Message.after_crash(entry)
    end
  end
  for _, key in ipairs(Step.due(KEY.resting, Bound.SWEEP)) do
    local lane = Lane.at(key) -- an idle lane is not written back
    if not Lane.is_idle(lane) and not Lane.has_lines(lane) and not lane.flight then Lane.rest(lane) end
  end
  for _, id in ipairs(Step.due(KEY.ended, Bound.FORGET)) do
    local message = Message.at(id)
    if message and not Message.OPEN[message.state] and not Message.DEAD_LETTER[message.state] then
      Message.forget(message)
    end
  end
  Step.flush() -- the step itself may take some of it back
end

function Step.flush()
  for command, batches in pairs(Now.changes) do
    for key, arguments in pairs(batches) do Prelude.call_many(command, key, arguments) end
  end
  Now.changes = {}
end

function Step.announce_turns(granted)
  for _, turn in ipairs(granted) do
    if turn.owner == terms.me then
      Now.answer.granted = Now.answer.granted or {}
      Now.answer.granted[turn.id] = turn.token
    else
      call('PUBLISH', KEY.channel, turn.owner)
    end
  end
end

function Step.wake_worker()
  if call('LLEN', KEY.wake) == 0 then call('LPUSH', KEY.wake, 1) end
end

-- Wakes a worker that waits for messages, and the processes that wait for a turn.
function Step.wake_processes()
  Step.wake_worker()
  if Now.waiting_turns > 0 then call('PUBLISH', KEY.channel, '*') end
end

function Step.write_counts()
  for name, change in pairs(Now.counted) do
    if change ~= 0 and call('HINCRBY', KEY.counts, name, change) == 0 then call('HDEL', KEY.counts, name) end
  end
end

function Step.write()
  for _, bot in pairs(Now.bots) do
    if (bot.closed or 0) <= Now.time then bot.closed = nil end
    if (bot.away or 0) <= Now.time then bot.away, bot.obstacle = nil, nil end
  end
  Lane.save_all()
  Lane.save_pools()
  Lane.save_bots()
  Message.save_all(Now.messages, KEY.messages)
  Message.save_all(Now.turns, KEY.turns)
  Step.flush()
  Step.write_counts()
  call('HSET', KEY.meta, 'numbers', Now.numbers, 'last', Now.time,
    'offset', Now.offset, 'turns', Now.waiting_turns, 'watch_at', Now.watch_at, 'watch_by', Now.watch_by or '',
    'claimers', Now.claimers)
end

-- Ends every step. `watching`: the caller knows when the next step is due, and makes it.
function Step.finish(main, watching)
  for name, value in pairs(main or {}) do Now.answer[name] = value end
  if Now.waiting_turns > 0 then Step.announce_turns(Schedule.grant_round(0)) end
  local watched = Now.watch_at > Now.time and Now.watch_at or NEVER -- a watch that has passed does not count
  if not watching and (call('ZCARD', KEY.active) > 0 or Now.earliest < watched) then
    Step.wake_processes()
    Now.watch_at = math.min(watched, Now.earliest)
  end
  Now.answer.more = Now.more or nil
  for _, message in ipairs(Now.ended) do
    Now.answer.ended = Now.answer.ended or {}
    Now.answer.ended[#Now.answer.ended + 1] = Message.report(message)
  end
  Step.write()
  local reply = { pack(Now.answer) }
  for _, text in ipairs(Now.blobs) do reply[#reply + 1] = text end
  return reply
end

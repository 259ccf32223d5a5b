-- How every step of the outbox begins and ends. At first due timers act; at the end turns are granted, a sleeping process
-- is woken if need be, and everything that changed is written. `Now` is what a step knows and changes in between.
--
-- ARGV[2] are the terms of the calling process: its name, its rules, its lease and so on. Behind them is the epoch of the
-- data that it knows, if it knows one.

local terms, known_epoch = unpack_one(ARGV[2])
local Store, Timers, Lane, Line, Share, Flood, Schedule, Message, Step = {}, {}, {}, {}, {}, {}, {}, {}, {}

local Level = CONSTANT.LEVELS -- the level of a turn is TURN + its priority
-- Where a line is; nil if it is empty. SUSPECT: it could be ready, but suspects go one at a time.
local Place = { READY = 1, WAITING = 2, BLOCKED = 3, SUSPECT = 4 }

Store.NOTHING = {}

-- How much one call may do, so that Redis is free for others soon. The rest is done by the next call.
local Bound = { LINES = 2000, POOLS = 128, TIMERS = 200, LEASES = 200, FORGET = 200, SWEEP = 200, KILL = 500, MOVE = 500,
  SUSPECTS = 1000,
  ADOPT = 500,
  PAGE = 1000, BYTES = 2 ^ 20 }

local Now = {
  lanes = {}, pools = {}, bots = {}, new_bots = {}, messages = {}, turns = {}, -- by key or id, as far as they were asked for
  changes = {}, counted = {}, counted_of = {}, ages = {}, -- written when the step ends
  ended = {}, -- messages that ended other than by their own settlement: the caller reports them to the application
  answer = { step = STEP }, -- never empty: Lua packs an empty table as a list
  blobs = {}, -- texts beside the answer, which are not decoded
  looked = 0, -- lines examined
  earliest = NEVER, -- the earliest timer that was set: the process that keeps watch has to know
  more = false, -- more is due than one step may do
  lapsed = nil, -- whose lease has just run out
}

do
  local meta = call(
    'HMGET', KEY.meta, 'numbers', 'last', 'offset', 'turns', 'restarted', 'watch_at', 'watch_by', 'claimers',
    'suspect', 'offered', 'epoch', 'unsettled', 'counting', 'adopted', 'ordered')
  -- The data that the caller knows is gone (FLUSHDB, for example): it opens the store anew, which notes that, before it
  -- does anything else. Redis still knows the scripts, so that nothing else would tell.
  if STEP ~= 'open' and known_epoch and meta[11] ~= known_epoch then return redis.error_reply('EPOCH') end
  Now.numbers = tonumber(meta[1] or Prelude.FIRST_NUMBER)
  Now.last = tonumber(meta[2] or 0) -- the time of the step before
  Now.waiting_turns = tonumber(meta[4] or 0)
  Now.restarted = tonumber(meta[5] or -1e9) -- or emptied
  -- Until then, calls that Redis has forgotten may reach Telegram. What they took is free one window later.
  Now.forgotten_until = Now.restarted + (terms and terms.longest_call or 0)
  Now.watch_at, Now.watch_by = tonumber(meta[6] or 0), meta[7]
  Now.claimers = tonumber(meta[8] or 0) -- until when some worker waits for messages, and can be woken
  Now.suspect, Now.offered = meta[9] or '', meta[10] or '' -- a message, and a line: see `Schedule.offer_suspect`
  Now.unsettled = tonumber(meta[12] or 0) -- messages; each process is told, and knows what is lost with the data
  -- See `Message.adopt`: in a store that is new, nothing is left to adopt.
  Now.counting, Now.adopted = tonumber(meta[13] or 1), meta[14] or (meta[1] and '0' or 'all')
  Now.has_unordered = meta[1] ~= meta[15] -- see `Message.note_unordered`
  Now.time, Now.offset = Prelude.steady_time(meta[2], meta[3]) -- one instant for the whole step
end

-- Only what stores messages must fail when memory is full, whatever is due. Delivery goes on, and makes room.
if STEP == 'put' or STEP == 'bring' then Prelude.fail_when_full() else Prelude.work_when_full() end

function Store.next_number()
  Now.numbers = Now.numbers + 1
  return Now.numbers
end

-- A change that is written when the step ends, in one command with others of its kind.
function Store.later(command, key, first, second)
  local batches = Now.changes[command]
  if batches == nil then
    batches = {}
    Now.changes[command] = batches
  end
  local batch = batches[key]
  if batch == nil then
    batch = {}
    batches[key] = batch
  end
  batch[#batch + 1] = first
  if second ~= nil then batch[#batch + 1] = second end
end

function Store.count(name, change)
  Now.counted[name] = (Now.counted[name] or 0) + change
end

-- Counts for one bot, and so for all.
function Store.count_of(bot, name, change)
  local its = Now.counted_of[bot]
  if its == nil then
    its = {}
    Now.counted_of[bot] = its
  end
  its[name] = (its[name] or 0) + change
end

-- Puts a text beside the answer; returns its number.
function Store.blob(text)
  Now.blobs[#Now.blobs + 1] = text
  return #Now.blobs
end

-- A timer that has become pointless meanwhile does nothing when it is due.
function Timers.set(at, kind, what)
  call('ZADD', KEY.timers, at, kind .. what)
  if at < Now.earliest then Now.earliest = at end
end

-- When the next step may have something to do.
function Timers.next_at()
  local soonest = NEVER
  for _, set in ipairs({ { KEY.timers, 0 }, { KEY.leases, 0 }, { KEY.resting, CONSTANT.SWEEP_WITHIN } }) do
    local first = call('ZRANGE', set[1], 0, 0, 'WITHSCORES')
    if first[2] then soonest = math.min(soonest, tonumber(first[2]) + set[2]) end
  end
  return soonest
end

function Step.wake_line(text)
  local lane, level, line = Schedule.line_at(text)
  if line and line.place == Place.WAITING and line.wake <= Now.time then Schedule.place(lane, level, line) end
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
  M = function(key)
    local lane = Lane.at(key)
    if lane.moving then Schedule.move_some(lane) end
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
    Now.lapsed = id
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
  local prefix = CONSTANT.OPEN_COUNT_PREFIX
  for _, its in pairs(Now.counted_of) do
    for name, change in pairs(its) do Store.count(name, change) end
  end
  for name, change in pairs(Now.counted) do
    if string.sub(name, 1, #prefix) == prefix then Now.unsettled = Now.unsettled + change end
    if change ~= 0 and call('HINCRBY', KEY.counts, name, change) == 0 then call('HDEL', KEY.counts, name) end
  end
  for bot, its in pairs(Now.counted_of) do
    for name, change in pairs(its) do
      local field = bot .. '/' .. name
      if change ~= 0 and call('HINCRBY', KEY.bot_counts, field, change) == 0 then call('HDEL', KEY.bot_counts, field) end
    end
  end
end

function Step.write()
  for _, bot in pairs(Now.bots) do
    if (bot.closed or 0) <= Now.time then bot.closed = nil end
    for kind, till in pairs(bot.full or Store.NOTHING) do
      if till <= Now.time then bot.full[kind] = nil end
    end
    if bot.full and next(bot.full) == nil then bot.full = nil end
  end
  Lane.save_all()
  Lane.save_pools()
  Lane.save_bots()
  Message.save_all(Now.messages, KEY.messages)
  Message.save_all(Now.turns, KEY.turns)
  Message.save_ages()
  Step.flush()
  Step.write_counts()
  Message.note_unordered()
  call('HSET', KEY.meta, 'numbers', Now.numbers, 'last', Now.time,
    'offset', Now.offset, 'turns', Now.waiting_turns, 'watch_at', Now.watch_at, 'watch_by', Now.watch_by or '',
    'claimers', Now.claimers, 'suspect', Now.suspect, 'offered', Now.offered, 'unsettled', Now.unsettled,
    'counting', Now.counting, 'adopted', Now.adopted, 'ordered', Now.numbers)
  Now.answer.unsettled = Now.unsettled
end

-- Ends every step. `watching`: the caller knows when the next step is due, and makes it.
function Step.finish(main, watching)
  for name, value in pairs(main or {}) do Now.answer[name] = value end
  if Now.waiting_turns > 0 then Step.announce_turns(Schedule.grant_round(0)) end
  local watched = Now.watch_at > Now.time and Now.watch_at or NEVER -- a watch that has passed does not count
  if not watching and (call('ZCARD', KEY.active) > 0 or Now.earliest < watched or Schedule.needs_offer()) then
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

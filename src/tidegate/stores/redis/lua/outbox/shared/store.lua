-- What every step of the outbox knows and changes, the numbers it hands out, and the timers.
--
-- ARGV[2] are the terms of the calling process: its name, its rules, its lease and so on.

local terms = unpack_one(ARGV[2])
local Store, Timers, Lane, Line, Share, Flood, Schedule, Message, Step = {}, {}, {}, {}, {}, {}, {}, {}, {}

Store.NOTHING = {}

-- How much one call may do, so that Redis is free for others soon. The rest is done by the next call.
local Bound = { LINES = 2000, POOLS = 128, TIMERS = 200, LEASES = 200, FORGET = 200, SWEEP = 200, KILL = 500 }

local Now = {
  lanes = {}, pools = {}, bots = {}, messages = {}, turns = {}, -- by key or id, as far as they were asked for
  changes = {}, counted = {}, -- written when the step ends
  ended = {}, -- messages that ended other than by their own settlement: the caller reports them to the application
  answer = { step = STEP }, -- never empty: Lua packs an empty table as a list
  blobs = {}, -- texts beside the answer, which are not decoded
  looked = 0, -- lines examined
  earliest = NEVER, -- the earliest timer that was set: the process that keeps watch has to know
  more = false, -- more is due than one step may do
}

-- Only `put` must fail when memory is full, whatever is due. Delivery goes on, and makes room.
if STEP == 'put' then Prelude.fail_when_full() else Prelude.work_when_full() end

do
  local meta = call(
    'HMGET', KEY.meta, 'numbers', 'last', 'offset', 'turns', 'restarted', 'watch_at', 'watch_by', 'claimers')
  Now.numbers = tonumber(meta[1] or Prelude.FIRST_NUMBER)
  Now.last = tonumber(meta[2] or 0) -- the time of the step before
  Now.waiting_turns = tonumber(meta[4] or 0)
  Now.restarted = tonumber(meta[5] or -1e9)
  Now.watch_at, Now.watch_by = tonumber(meta[6] or 0), meta[7]
  Now.claimers = tonumber(meta[8] or 0) -- until when some worker waits for messages, and can be woken
  Now.time, Now.offset = Prelude.steady_time(meta[2], meta[3]) -- one instant for the whole step
end

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

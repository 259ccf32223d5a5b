-- What every step begins with: the keys, the time, and the numbers it hands out.
--
-- Functions are in tables, one for each file, and so is what changes: a script's every function is made anew at each
-- call, and one that refers to many names of its own makes that slow. Tables are written down with all they will hold:
-- one that grows name by name is made anew at each doubling, which took half of the time.
--
-- Each step is called with the same keys, all of one partition, and touches no other. ARGV[1] is the time (empty:
-- Redis's own, which is what processes with different clocks share), ARGV[2] the terms: rules, lease and so on.

local KEY = {}
for i, name in ipairs({
  'meta', 'counts', 'messages', 'turns', 'lanes', 'pools', 'bots', 'queue', 'ready', 'timers', 'leases', 'active',
  'resting', 'ended', 'letters', 'dedup', 'coalesce', 'aliases', 'learned', 'wake', 'channel',
  'processes', 'claimed',
}) do
  KEY[name] = KEYS[i]
end

local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local NEVER = math.huge
local terms = unpack_one(ARGV[2])
local Store, Timers, Lane, Line, Share, Flood, Schedule, Message, Step = {}, {}, {}, {}, {}, {}, {}, {}, {}

-- Numbers have as many digits from the first to the last: so their texts have their order, without being filled up.
Store.FIRST_NUMBER, Store.DIGITS = 1e13, 14

Store.NOTHING = {}

-- How much one call may do, so that Redis is free for others soon. What is left over is done by the next.
local Bound = {
  LINES = 2000, POOLS = 128, TIMERS = 200, LEASES = 200, FORGET = 200, SWEEP = 200, BURY = 500, ALIASES = 10000,
}

-- Everything that this step knows and changes.
local Now = {
  lanes = {}, pools = {}, bots = {}, messages = {}, turns = {}, -- by key or id, as far as they were asked for
  changes = {}, counted = {}, -- that are written when it ends
  ended = {}, -- messages, other than by their own settlement: whoever made the step tells the application
  answer = { step = STEP }, -- never empty: Lua could not say that it is no list
  blobs = {}, -- texts that go beside the answer and are not looked into
  looked = 0, -- lines
  earliest = NEVER, -- timer that was set: whoever keeps watch has to know
  more = false, -- is due, beyond what one step may do
}

-- A write that Redis allows even when its memory is full: after it, the others of this script are allowed too.
-- Only `put` begins with one that is not allowed then: it is what must fail, whatever is due. Delivery goes on.
if STEP == 'put' then call('HSET', KEY.meta, 'none', 0) else call('HDEL', KEY.meta, 'none') end

do
  local meta = call(
    'HMGET', KEY.meta, 'numbers', 'last', 'offset', 'turns', 'restarted', 'watch_at', 'watch_by', 'claimers')
  Now.numbers = tonumber(meta[1] or Store.FIRST_NUMBER)
  Now.waiting_turns = tonumber(meta[4] or 0)
  Now.restarted = tonumber(meta[5] or -1e9)
  Now.watch_at, Now.watch_by = tonumber(meta[6] or 0), meta[7]
  Now.claimers = tonumber(meta[8] or 0) -- until when some worker waits for messages, and can be roused

  -- Read once: it is the same instant for the whole step. If Redis's clock was set back, time goes on all the same.
  local wall, offset, last = tonumber(ARGV[1]), tonumber(meta[3] or 0), tonumber(meta[2] or 0)
  if wall == nil then
    local time = call('TIME')
    wall = tonumber(time[1]) + tonumber(time[2]) / 1e6
  end
  if wall + offset < last then offset = last - wall end
  Now.time, Now.offset, Now.last = wall + offset, offset, last -- of the step before
end

function Store.next_number()
  Now.numbers = Now.numbers + 1
  return Now.numbers
end

-- For texts; `redis.call` does as much with a number by itself.
function Store.exact(number)
  return string.format('%.17g', number)
end

-- Arguments in thousands: Lua cannot pass more at once.
function Store.call_many(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- A change that goes out with others when the step ends: one command instead of one for each.
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

-- A text beside the answer; its number.
function Store.blob(text)
  Now.blobs[#Now.blobs + 1] = text
  return #Now.blobs
end

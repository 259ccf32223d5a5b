-- What every step begins with: the keys, the time, and the numbers it hands out.
--
-- Each step is called with the same keys, all of one partition, and touches no other. ARGV[1] is the time (empty:
-- Redis's own, which is what processes with different clocks share), ARGV[2] the terms: rules, lease and so on.

local KEY = {}
for i, name in ipairs({
  'meta', 'counts', 'messages', 'turns', 'lanes', 'pools', 'bots', 'queue', 'ready', 'timers', 'leases', 'active',
  'resting', 'ended', 'letters', 'dedup', 'coalesce', 'aliases', 'learned', 'wake', 'channel',
  'processes',
}) do
  KEY[name] = KEYS[i]
end

local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local NEVER = math.huge
local terms = unpack_one(ARGV[2])
local ME = terms.me

-- How much one call may do, so that Redis is free for others soon. What is left over is done by the next.
local LINES, POOLS, TIMERS, LEASES, FORGET, SWEEP, BURY = 2000, 128, 200, 200, 200, 200, 500

-- A write that Redis allows even when its memory is full: after it, the others of this script are allowed too.
-- Only `put` goes without: it is what must fail then. Delivery goes on.
if STEP ~= 'put' then call('HDEL', KEY.meta, 'none') end

local meta = {}
do
  local names = { 'numbers', 'last', 'offset', 'turns', 'restarted', 'watch_at', 'watch_by', 'claimers' }
  local values = call('HMGET', KEY.meta, unpack(names))
  for i, name in ipairs(names) do meta[name] = values[i] end
end

-- Read once: it is the same instant for the whole step. If Redis's clock was set back, time goes on from where it was.
local now
do
  local wall = tonumber(ARGV[1])
  if wall == nil then
    local time = call('TIME')
    wall = tonumber(time[1]) + tonumber(time[2]) / 1e6
  end
  local offset, last = tonumber(meta.offset or 0), tonumber(meta.last or 0)
  if wall + offset < last then offset = last - wall end
  now, meta.offset = wall + offset, offset
end

local numbers = tonumber(meta.numbers or 0)
local function next_number()
  numbers = numbers + 1
  return numbers
end

local restarted = tonumber(meta.restarted or -1e9)
local waiting_turns = tonumber(meta.turns or 0)
local watch_at, watch_by = tonumber(meta.watch_at or 0), meta.watch_by
local claimers = tonumber(meta.claimers or 0) -- until when some worker waits for messages, and can be roused
local looked = 0 -- lines, in this step

-- Arguments in thousands: Lua cannot pass more at once.
local function call_many(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- Changes that go out together when the step ends: one command instead of one for each.
local changes = {}
local function later(command, key, ...)
  local name = command .. key
  local batch = changes[name]
  if batch == nil then
    batch = { command = command, key = key }
    changes[name] = batch
  end
  for _, argument in ipairs({ ... }) do batch[#batch + 1] = argument end
end

local counted = {}
local function count(name, change)
  counted[name] = (counted[name] or 0) + change
end

-- What the caller gets back: one packed answer, and texts that are not to be looked into.
local answer, blobs = { step = STEP }, {} -- never empty: Lua could not say that it is no list
local function blob(text)
  blobs[#blobs + 1] = text
  return #blobs
end

local function exact(number)
  return string.format('%.17g', number)
end

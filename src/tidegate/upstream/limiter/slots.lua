-- What every step of a shared limiter starts with. Slots are members of two sorted sets: those of requests in flight,
-- by the end of their lease, and those that cool, by the time at which they are free. A slot is in one of them.
--
-- KEYS: the slots in flight, the slots that cool, the state (lockout and learned rate).
-- ARGV: the time (empty: Redis's own), the rule (count, seconds), then what the step needs.

local HELD, COOLING, STATE = KEYS[1], KEYS[2], KEYS[3]
local TICK = 1e-6 -- seconds: rounding must not free a slot too early

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local rule = { tonumber(ARGV[2]), tonumber(ARGV[3]) }

local kept = redis.call('GET', STATE)
local state = kept and cmsgpack.unpack(kept) or {}
local closed_until = state.closed_until or 0
local learned = state.learned or Learned.new(rule)
if Learned.stale(learned, now) then learned = Learned.new(rule) end
Learned.quiet(learned, rule, now)

local function text(value) return string.format('%.17g', value) end

-- The instant is right before the last slot's: a key that is gone early would give slots away.
local function live_until(key, instant)
  redis.call('PEXPIRE', key, math.max(1, math.ceil((instant - now) * 1000) + 1000))
end

local function add(key, slot, instant)
  redis.call('ZADD', key, text(instant), slot)
  local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  live_until(key, tonumber(last[2]))
end

local function keep_state()
  local worth = math.max(closed_until, learned.bad and learned.cut_at + Learned.FORGET_AFTER or 0)
  if worth <= now then
    redis.call('DEL', STATE)
    return
  end
  redis.call('SET', STATE, cmsgpack.pack({ closed_until = closed_until, learned = learned.bad and learned or nil }))
  live_until(STATE, worth)
end

local function close(seconds)
  closed_until = math.max(closed_until, now + seconds)
end

-- What is allowed now, and for how long nobody may ask.
local function terms()
  local rate = Learned.rate(learned, rule)
  return text(rate[1]), text(rate[2]), text(math.max(0, closed_until - now))
end

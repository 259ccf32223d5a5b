-- What every step of a shared limiter starts with. Slots are members of two sorted sets: those of requests in flight,
-- by the end of their lease, and those that cool, by the time at which they are free. A slot is in one of them.
--
-- KEYS: the slots in flight, the slots that cool, the state (lockout, learned rate, mark, who waits in the foreground).
-- ARGV: the time (empty: Redis's own), the rule (count, seconds), the mark that the process knows, then what the step
-- needs. A state that is new has a new mark: who knows another one tells again what Redis has lost.

local HELD, COOLING, STATE = KEYS[1], KEYS[2], KEYS[3]
local TICK = 1e-6 -- seconds: rounding must not free a slot too early
local LONGEST = 3600 -- seconds of a lockout, and for which the state is kept

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local rule = { tonumber(ARGV[2]), tonumber(ARGV[3]) }

local function text(value) return string.format('%.17g', value) end

local kept = redis.call('GET', STATE)
local state = kept and cmsgpack.unpack(kept) or {}
state.mark = state.mark or text(now)
local forgot = ARGV[4] ~= '' and ARGV[4] ~= state.mark
-- What lies further ahead than it can was written before the clock was set back.
local closed_until = math.min(state.closed_until or 0, now + (state.closed_for or 0))
local learned = state.learned or Learned.new(rule)
learned.cut_at = math.min(learned.cut_at, now)
if Learned.stale(learned, now) then learned = Learned.new(rule) end
Learned.quiet(learned, rule, now)

-- The instant is right before the last slot's: a key that is gone early would give slots away.
local function live_until(key, instant)
  redis.call('PEXPIRE', key, math.max(1, math.ceil((instant - now) * 1000) + 1000))
end

local function add(key, slot, instant)
  redis.call('ZADD', key, text(instant), slot)
  local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  live_until(key, tonumber(last[2]))
end

local function clamp(key, latest)
  for _, slot in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. text(latest), '+inf')) do
    redis.call('ZADD', key, text(latest), slot)
  end
end

local function keep_state()
  state.closed_until, state.learned = closed_until, learned.bad and learned or nil
  redis.call('SET', STATE, cmsgpack.pack(state))
  live_until(STATE, now + LONGEST)
end

local function close(seconds)
  if now + seconds <= closed_until then return end
  closed_until, state.closed_for = now + seconds, math.min(seconds, LONGEST)
end

-- What is allowed now, for how long nobody may ask, and the mark.
local function terms()
  local rate = Learned.rate(learned, rule)
  return text(rate[1]), text(rate[2]), text(math.max(0, closed_until - now)), state.mark
end

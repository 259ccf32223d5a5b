-- What the steps of a shared limiter begin with. A slot is a member of one of two sorted sets: `held` has the slots of
-- requests in flight, by the end of their lease; `cooling` those that are free again at a known time. `state` has the
-- lockout, the learned rate, the process that waits in the foreground, and a mark.
--
-- ARGV[2], ARGV[3]: the rule (count, seconds); ARGV[4]: the mark that the process knows. A state that is made new gets
-- a new mark: a process that knows another one tells again what Redis has lost.

local TICK = 1e-6 -- seconds: rounding must not free a slot too early

local now = Prelude.wall_time()
local rule = { tonumber(ARGV[2]), tonumber(ARGV[3]) }
local Slots = {}

local stored = call('GET', KEY.state)
local state = stored and unpack_one(stored) or {}
state.mark = state.mark or Prelude.exact(now)
local forgot = ARGV[4] ~= '' and ARGV[4] ~= state.mark
-- A time that lies further ahead than it can was written before the clock was set back.
local closed_until = math.min(state.closed_until or 0, now + (state.closed_for or 0))
local learned = state.learned or Learned.new(rule)
learned.cut_at = math.min(learned.cut_at, now)
if Learned.stale(learned, now) then learned = Learned.new(rule) end
Learned.quiet(learned, rule, now)

-- A second longer than the key is needed: one that is gone early would give slots away.
function Slots.keep_until(key, instant)
  call('PEXPIRE', key, math.max(1, math.ceil((instant - now) * 1000) + 1000))
end

function Slots.add(key, slot, instant)
  call('ZADD', key, Prelude.exact(instant), slot)
  local last = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  Slots.keep_until(key, tonumber(last[2]))
end

function Slots.clamp(key, latest)
  for _, slot in ipairs(call('ZRANGEBYSCORE', key, '(' .. Prelude.exact(latest), '+inf')) do
    call('ZADD', key, Prelude.exact(latest), slot)
  end
end

function Slots.save_state()
  state.closed_until, state.learned = closed_until, learned.bad and learned or nil
  call('SET', KEY.state, pack(state))
  Slots.keep_until(KEY.state, now + CONSTANT.LONGEST_LOCKOUT)
end

function Slots.close(seconds)
  if now + seconds <= closed_until then return end
  closed_until, state.closed_for = now + seconds, math.min(seconds, CONSTANT.LONGEST_LOCKOUT)
end

-- The rate allowed now, the seconds for which nobody may ask, and the mark: the end of every reply.
function Slots.terms()
  local rate = Learned.rate(learned, rule)
  local closed_for = Prelude.exact(math.max(0, closed_until - now))
  return Prelude.exact(rate[1]), Prelude.exact(rate[2]), closed_for, state.mark
end

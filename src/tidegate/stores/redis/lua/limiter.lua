-- A limiter that processes share. A slot is a member of one of two sorted sets: `held` has the slots of
-- requests in flight, by the end of their lease; `cooling` those that are free again at a known time. `state` has the
-- lockout, the learned rate, the process that waits in the foreground, and a mark.
--
-- ARGV[2], ARGV[3]: the rule (count, seconds); ARGV[4]: the mark that the process knows. A state that is made new gets
-- a new mark: a process that knows another one tells again what Redis has lost.

local TICK = 1e-6 -- seconds: rounding must not free a slot too early

local now = Prelude.wall_time()
local rule = { tonumber(ARGV[2]), tonumber(ARGV[3]) }
local Slots = {}

local function are_numbers(...)
  for i = 1, select('#', ...) do
    if type((select(i, ...))) ~= 'number' then return false end
  end
  return true
end

-- A state that cannot be read counts as lost: what processes know is told again.
local function read_state()
  local stored = call('GET', KEY.state)
  if not stored then return {} end
  local is_read, found = pcall(unpack_one, stored)
  if not is_read or type(found) ~= 'table' then return {} end
  local kept, front = found.learned or Learned.new(rule), found.front or { '', 0 }
  local is_sound = type(found.mark) == 'string' and type(kept) == 'table' and type(front) == 'table'
    and are_numbers(found.closed_until or 0, found.closed_for or 0, kept.step, kept.interval, kept.cut_at, kept.next_up,
      kept.bad or 0, front[2])
  return is_sound and found or {}
end

local state = read_state()
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

-- Take: as many slots as are free, for those who wait in this process: first the foreground, then the background, which
-- leaves one slot free. At no time are more slots in flight and cooling than the rate allows, in all processes together.
-- A slot whose lease has ended is free: its process is gone, for longer than a request and its window may last.
-- Background stands behind the foreground of all processes: one whose foreground has to wait says so, until it asks again.
--
-- ARGV[5], ARGV[6]: how many wait in the foreground and the background; ARGV[7]: seconds of a lease; ARGV[8], ARGV[9]: a
-- name for the slots of this step, and the number of the first.
-- Replies how many of each may go, the seconds until it is worth asking again, and the terms.
function Steps.take()
  local foreground, background, lease = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  local name, number = ARGV[8], tonumber(ARGV[9])
  local LATE = 0.25 -- seconds by which a process may ask later than it said

  local rate = Learned.rate(learned, rule)
  call('ZREMRANGEBYSCORE', KEY.held, '-inf', Prelude.exact(now))
  call('ZREMRANGEBYSCORE', KEY.cooling, '-inf', Prelude.exact(now))
  Slots.clamp(KEY.held, now + lease)
  Slots.clamp(KEY.cooling, now + rate[2] + TICK)
  local cooling = call('ZCARD', KEY.cooling)
  local free = rate[1] - call('ZCARD', KEY.held) - cooling
  if closed_until > now or forgot then free = 0 end

  local front = state.front -- the process that waits in the foreground, and until when that holds
  local yields = front and front[1] ~= name and front[2] > now and front[2] <= now + rate[2] + LATE
  local reserve = rate[1] > 1 and 1 or 0
  local first = math.max(0, math.min(foreground, free))
  local second = yields and 0 or math.max(0, math.min(background, free - first - reserve))
  for i = 0, first + second - 1 do
    Slots.add(KEY.held, name .. (number + i), now + lease)
  end

  -- A slot in flight is not free before its answer and a window more: no need to ask sooner.
  local wait = rate[2]
  local lacking = (foreground > first and 1 or 1 + reserve) - (free - first - second)
  if lacking >= 1 and lacking <= cooling then
    local next = call('ZRANGE', KEY.cooling, lacking - 1, lacking - 1, 'WITHSCORES')
    wait = math.min(wait, tonumber(next[2]) - now)
  end
  if foreground > first then
    state.front = { name, now + wait + LATE }
  elseif yields then
    wait = front[2] - now
  elseif front and (front[1] == name or front[2] <= now) then
    state.front = nil
  end
  if closed_until > now then wait = closed_until - now end
  Slots.save_state()
  return { first, second, Prelude.exact(math.max(wait, TICK)), Slots.terms() }
end

-- Settle: slots begin to cool (ARGV[5] is 'answered') or are free at once ('never_left'). A slot whose lease has ended
-- meanwhile cools as well: its answer came only now. From ARGV[6] on: the slots. Replies the terms.
function Steps.settle()
  local cools = ARGV[5] == 'answered'
  local free_at = now + Learned.rate(learned, rule)[2] + TICK
  for i = 6, #ARGV do
    call('ZREM', KEY.held, ARGV[i])
    if cools then Slots.add(KEY.cooling, ARGV[i], free_at) end
  end
  Slots.save_state()
  return { Slots.terms() }
end

-- Close: nobody takes a slot for ARGV[5] seconds, in any process. ARGV[6] is 1 for a 429, which cuts the rate once: calls
-- that were on their way when it closed are refused as well. Replies the terms.
function Steps.close()
  if ARGV[6] == '1' and closed_until <= now then Learned.refused(learned, rule, now) end
  Slots.close(tonumber(ARGV[5]))
  Slots.save_state()
  return { Slots.terms() }
end

-- Adopt: a process could not reach Redis for a while, or Redis has lost its state: what the process knows holds for
-- everyone. Replies the terms.
--
-- ARGV[5]: seconds of a lease; ARGV[6]: seconds for which it is closed; ARGV[7]: how many slots the process holds, then
-- these; then, of each slot that it settled, the name and the seconds until it is free (0: now).
function Steps.adopt()
  local lease, held = tonumber(ARGV[5]), tonumber(ARGV[7])
  Slots.close(tonumber(ARGV[6]))
  Slots.save_state()
  for i = 8, 7 + held do
    Slots.add(KEY.held, ARGV[i], now + lease)
  end
  for i = 8 + held, #ARGV, 2 do
    local seconds = tonumber(ARGV[i + 1])
    call('ZREM', KEY.held, ARGV[i])
    if seconds > 0 then Slots.add(KEY.cooling, ARGV[i], now + seconds + TICK) end
  end
  return { Slots.terms() }
end

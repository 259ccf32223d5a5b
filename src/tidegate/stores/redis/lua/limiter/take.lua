-- Take: as many slots as are free, for those who wait in this process: first the foreground, then the background, which
-- leaves one slot free. At no time are more slots in flight and cooling than the rate allows, in all processes together.
-- A slot whose lease has ended is free: its process is gone, for longer than a request and its window may last.
-- Background stands behind the foreground of all processes: one whose foreground has to wait says so, until it asks again.
--
-- ARGV[5], ARGV[6]: how many wait in the foreground and the background; ARGV[7]: seconds of a lease; ARGV[8], ARGV[9]: a
-- name for the slots of this step, and the number of the first.
-- Replies how many of each may go, the seconds until it is worth asking again, and the terms.

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

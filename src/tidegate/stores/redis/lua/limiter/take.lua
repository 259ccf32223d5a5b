-- As many slots as are free, to those who wait here: first the foreground, then the background, which leaves one free.
-- Atomic: at no time are there more slots in flight and cooling than the rate allows, in all processes together.
-- Slots whose lease ended are free: whoever held them is gone, and longer than a request and its window may last.
-- Background goes behind the foreground of all processes: one whose foreground has to wait says so, until it asks again.
--
-- ARGV, after the mark: how many wait in the foreground and the background, seconds of a lease, a name for the slots
-- of this step and the number of the first.
-- Returns how many of each may go, the seconds until it is worth to ask again, and the terms.

local foreground, background, lease = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local name, number = ARGV[8], tonumber(ARGV[9])
local LATE = 0.25 -- seconds by which a process may ask later than it said

local rate = Learned.rate(learned, rule)
redis.call('ZREMRANGEBYSCORE', HELD, '-inf', text(now))
redis.call('ZREMRANGEBYSCORE', COOLING, '-inf', text(now))
clamp(HELD, now + lease)
clamp(COOLING, now + rate[2] + TICK)
local cooling = redis.call('ZCARD', COOLING)
local free = rate[1] - redis.call('ZCARD', HELD) - cooling
if closed_until > now or forgot then free = 0 end

local front = state.front -- which process waits in the foreground, and until when that holds
local yields = front and front[1] ~= name and front[2] > now and front[2] <= now + rate[2] + LATE
local reserve = rate[1] > 1 and 1 or 0
local first = math.max(0, math.min(foreground, free))
local second = yields and 0 or math.max(0, math.min(background, free - first - reserve))
for i = 0, first + second - 1 do
  add(HELD, name .. (number + i), now + lease)
end

-- Nothing that is in flight is free before its answer and a window more: no need to ask sooner.
local wait = rate[2]
local lacking = (foreground > first and 1 or 1 + reserve) - (free - first - second)
if lacking >= 1 and lacking <= cooling then
  local next = redis.call('ZRANGE', COOLING, lacking - 1, lacking - 1, 'WITHSCORES')
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
keep_state()
return { first, second, text(math.max(wait, TICK)), terms() }

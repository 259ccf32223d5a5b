-- As many slots as are free, to those who wait here: first the foreground, then the background, which leaves one free.
-- Atomic: at no time are there more slots in flight and cooling than the rate allows, in all processes together.
-- Slots whose lease ended are free: whoever held them is gone, and longer than a request and its window may last.
--
-- ARGV, after the rule: how many wait in the foreground and the background, seconds of a lease, a name for the slots
-- of this step and the number of the first.
-- Returns how many of each may go, the seconds until it is worth to ask again, and the terms.

local foreground, background, lease = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local name, number = ARGV[7], tonumber(ARGV[8])

local rate = Learned.rate(learned, rule)
redis.call('ZREMRANGEBYSCORE', HELD, '-inf', text(now))
redis.call('ZREMRANGEBYSCORE', COOLING, '-inf', text(now))
local cooling = redis.call('ZCARD', COOLING)
local free = rate[1] - redis.call('ZCARD', HELD) - cooling
if closed_until > now then free = 0 end

local reserve = rate[1] > 1 and 1 or 0
local first = math.max(0, math.min(foreground, free))
local second = math.max(0, math.min(background, free - first - reserve))
for i = 0, first + second - 1 do
  add(HELD, name .. (number + i), now + lease)
end
keep_state()

-- Nothing that is in flight is free before its answer and a window more: no need to ask sooner.
local wait = rate[2]
local lacking = (foreground > first and 1 or 1 + reserve) - (free - first - second)
if lacking >= 1 and lacking <= cooling then
  local next = redis.call('ZRANGE', COOLING, lacking - 1, lacking - 1, 'WITHSCORES')
  wait = math.min(wait, tonumber(next[2]) - now)
end
if closed_until > now then wait = closed_until - now end
return { first, second, text(math.max(wait, TICK)), terms() }

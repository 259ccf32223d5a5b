-- A process could not ask for a while, or Redis has forgotten: what the process knows holds for everyone.
--
-- ARGV, after the mark: seconds of a lease, seconds for which it is closed, how many slots it holds, these, and for each
-- that it settled its name and the seconds until it is free: 0 if it is.

local lease, held = tonumber(ARGV[5]), tonumber(ARGV[7])
close(tonumber(ARGV[6]))
keep_state()
for i = 8, 7 + held do
  add(HELD, ARGV[i], now + lease)
end
for i = 8 + held, #ARGV, 2 do
  local seconds = tonumber(ARGV[i + 1])
  redis.call('ZREM', HELD, ARGV[i])
  if seconds > 0 then add(COOLING, ARGV[i], now + seconds + TICK) end
end
return { terms() }

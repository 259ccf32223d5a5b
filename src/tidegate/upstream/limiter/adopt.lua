-- A process that could not ask for a while is back: what it knows holds for everyone.
--
-- ARGV, after the rule: seconds of a lease, seconds for which it is closed, how many slots it holds, these, and for each
-- that it settled meanwhile its name and the seconds until it is free: 0 if it is.

local lease, held = tonumber(ARGV[4]), tonumber(ARGV[6])
close(tonumber(ARGV[5]))
keep_state()
for i = 7, 6 + held do
  add(HELD, ARGV[i], now + lease)
end
for i = 7 + held, #ARGV, 2 do
  local seconds = tonumber(ARGV[i + 1])
  redis.call('ZREM', HELD, ARGV[i])
  if seconds > 0 then add(COOLING, ARGV[i], now + seconds + TICK) end
end
return { terms() }

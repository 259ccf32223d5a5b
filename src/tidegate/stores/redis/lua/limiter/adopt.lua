-- Adopt: a process could not reach Redis for a while, or Redis has lost its state: what the process knows holds for
-- everyone. Replies the terms.
--
-- ARGV[5]: seconds of a lease; ARGV[6]: seconds for which it is closed; ARGV[7]: how many slots the process holds, then
-- these; then, of each slot that it settled, the name and the seconds until it is free (0: now).

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

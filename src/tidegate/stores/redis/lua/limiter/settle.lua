-- Slots are given back, or begin to cool. A slot whose lease ended meanwhile cools as well: its answer came only now.
--
-- ARGV, after the mark: 'answered' or 'never_left', then the slots.

local cools = ARGV[5] == 'answered'
local free_at = now + Learned.rate(learned, rule)[2] + TICK
for i = 6, #ARGV do
  redis.call('ZREM', HELD, ARGV[i])
  if cools then add(COOLING, ARGV[i], free_at) end
end
keep_state()
return { terms() }

-- Settle: slots begin to cool (ARGV[5] is 'answered') or are free at once ('never_left'). A slot whose lease has ended
-- meanwhile cools as well: its answer came only now. From ARGV[6] on: the slots. Replies the terms.

local cools = ARGV[5] == 'answered'
local free_at = now + Learned.rate(learned, rule)[2] + TICK
for i = 6, #ARGV do
  call('ZREM', KEY.held, ARGV[i])
  if cools then Slots.add(KEY.cooling, ARGV[i], free_at) end
end
Slots.save_state()
return { Slots.terms() }

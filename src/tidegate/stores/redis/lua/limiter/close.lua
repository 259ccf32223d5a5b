-- Close: nobody takes a slot for ARGV[5] seconds, in any process. ARGV[6] is 1 for a 429, which cuts the rate once: calls
-- that were on their way when it closed are refused as well. Replies the terms.

if ARGV[6] == '1' and closed_until <= now then Learned.refused(learned, rule, now) end
Slots.close(tonumber(ARGV[5]))
Slots.save_state()
return { Slots.terms() }

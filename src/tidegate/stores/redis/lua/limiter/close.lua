-- Nobody takes a slot for so long. A 429 teaches: once, as what was on its way when it closed is refused as well.
--
-- ARGV, after the mark: seconds, and 1 for a 429.

if ARGV[6] == '1' and closed_until <= now then Learned.refused(learned, rule, now) end
close(tonumber(ARGV[5]))
keep_state()
return { terms() }

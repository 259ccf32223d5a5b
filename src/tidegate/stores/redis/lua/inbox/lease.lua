-- Lease: a name, the key beyond the fixed ones, is this process's alone for ARGV[3] seconds, or for so much longer if it
-- is already. Replies 0, and changes nothing, while it is another's.

local key, seconds = KEYS[#FIXED + 1], tonumber(ARGV[3])
local till, owner = string.match(call('GET', key) or '', '^(%S+) (.*)$')
if owner and owner ~= ARGV[2] and tonumber(till) > Step.time then return 0 end
-- Whether it has ended is said by what is written, as all times are; Redis only clears it away in the end.
call('SET', key, string.format('%.6f %s', Step.time + seconds, ARGV[2]), 'PX', math.ceil(2000 * seconds))
return 1

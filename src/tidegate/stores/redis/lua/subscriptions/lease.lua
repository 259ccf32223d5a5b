-- Lease: ARGV[2] is the one that polls for ARGV[3] seconds, or for so much longer if it is already. Replies 0 while
-- another is. Works when memory is full.

call('HDEL', META, 'none')  -- a write that Redis allows then: after it, the others are allowed too
local time, seconds = now(), tonumber(ARGV[3])
local till, holder = lease()
local taken = not another_polls(ARGV[2])
if taken then holder = ARGV[2] end
-- If the clock was set back, another's must not last: it is written anew, as if it were taken now.
if taken or till > time + seconds then
  -- Whether it has ended is said by what is written, as all times are; Redis only clears it away in the end.
  call('SET', LEASE, string.format('%.6f %s', time + seconds, holder), 'PX', math.ceil(2000 * seconds))
end
return taken and 1 or 0

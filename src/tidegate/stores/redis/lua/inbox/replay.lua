-- Replay: a parked arrival (ARGV[3], ARGV[4]: source and key) waits again, behind its lane, as if nobody had tried it.
-- Replies whether there was one.

local place, body = Letter.take(ARGV[3], ARGV[4])
if not body then return 0 end
local number = Step.next_number()
call('HSET', KEY.bodies, number, body)
Lane.join(string.sub(place, 1, -DIGITS - 1), number)
Step.tell()
return 1

-- Replay: a parked update (ARGV[3], ARGV[4]: source and key) waits again, at the end of its lane, as if nobody had tried
-- it. Replies whether there was one.

local place, body = Parked.take(ARGV[3], ARGV[4])
if not body then return 0 end
local number = Step.next_number()
call('HSET', KEY.bodies, number, body)
Lane.join(Lane.prefix(place), number)
Step.publish()
return 1

-- Live: this process is one of those that share the store. How many there are tells each its share of the limits, for
-- the time in which Redis cannot be asked.

local SILENT = 30 -- seconds after which a process counts as gone

call('ZADD', KEY.processes, Now.time, terms.me)
for _, process in ipairs(call('ZRANGEBYSCORE', KEY.processes, '-inf', Now.time - SILENT)) do
  call('ZREM', KEY.processes, process)
  call('HDEL', KEY.claimed, process)
end
return Step.done({ count = call('ZCARD', KEY.processes) })

-- Live: this process is one of those that share the store. How many there are tells each its share of the limits, for
-- the time in which Redis cannot be asked.

local SILENT = 30 -- seconds after which a process counts as gone

call('ZADD', KEY.processes, exact(now), ME)
call('ZREMRANGEBYSCORE', KEY.processes, '-inf', exact(now - SILENT))
return done({ count = call('ZCARD', KEY.processes) })

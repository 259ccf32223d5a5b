-- Stats: how many updates wait, are held by any process, and are parked, at one instant.

local held = call('HLEN', KEY.held)
return { call('ZCARD', KEY.queue) - held, held, call('HLEN', KEY.parked) }

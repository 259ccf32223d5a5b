-- Stats: how many wait, are held by whichever process, and are parked, at one instant.

local held = call('HLEN', KEY.held)
return { call('ZCARD', KEY.queue) - held, held, call('HLEN', KEY.parked) }

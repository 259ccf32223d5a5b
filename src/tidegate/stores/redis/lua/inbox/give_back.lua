-- Give back: a lease of this process (the key beyond the fixed ones) ends at once; another's goes on.

local key = KEYS[#FIXED + 1]
local owner = string.match(call('GET', key) or '', '^%S+ (.*)$')
if owner == ARGV[2] then call('DEL', key) end
return 1

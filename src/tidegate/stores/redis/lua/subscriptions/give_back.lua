-- Give back: if ARGV[2] is the one that polls, another may at once.

local _, holder = lease()
if holder == ARGV[2] then call('DEL', LEASE) end
return 1

-- Give back: if ARGV[2] holds the lease, it ends at once. The lease of another goes on.

local _, holder = Lease.read(KEY.lease)
if holder == ARGV[2] then call('DEL', KEY.lease) end
return 1

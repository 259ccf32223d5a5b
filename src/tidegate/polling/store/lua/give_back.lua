-- Give back: if ARGV[2] is the one that polls, another may at once.

if string.match(call('GET', LEASE) or '', '^%S+ (.*)$') == ARGV[2] then call('DEL', LEASE) end
return 1

-- Remove: from ARGV[2] on, keys. Nothing of them is left. Replies how many there were. Works when memory is full.

local removed = 0
for i = 2, #ARGV do removed = removed + forget(ARGV[i]) end
return removed

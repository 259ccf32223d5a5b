-- Remove: from ARGV[2] on, two for each: key, and the number that it must have (empty: any). Nothing of them is left.
-- Replies how many there were. Works when memory is full.

local removed = 0
for i = 2, #ARGV, 2 do
  if Subscription.has_number(ARGV[i], ARGV[i + 1]) then removed = removed + Subscription.forget(ARGV[i]) end
end
return removed

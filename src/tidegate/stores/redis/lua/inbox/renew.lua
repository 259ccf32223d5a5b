-- Renew: updates that this process still holds are its own for another lease. From ARGV[3] on: place and token of each.
-- Replies which of them, counted from 0, are not held any more.

local lost = {}
for i = 3, #ARGV, 2 do
  if Lane.is_held(ARGV[i], ARGV[i + 1]) then
    Lane.lease(ARGV[i])
  else
    lost[#lost + 1] = (i - 3) / 2
  end
end
return lost

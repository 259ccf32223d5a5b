-- Done: what this process still holds is forgotten, and its lane goes on. One whose token is old changes nothing: it
-- was given to somebody else meanwhile. From ARGV[3] on: place and token of each.

for i = 3, #ARGV, 2 do
  local place = ARGV[i]
  if Lane.is_held(place, ARGV[i + 1]) then
    Lane.leave(place)
    call('HDEL', KEY.bodies, Lane.number(place))
  end
end
Step.tell()
return 1

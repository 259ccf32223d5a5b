-- Done: updates that this process still holds are forgotten, and their lanes go on. An old token changes nothing: the
-- update was given to another process meanwhile. From ARGV[3] on: place and token of each.

for i = 3, #ARGV, 2 do
  local place = ARGV[i]
  if Lane.is_held(place, ARGV[i + 1]) then
    Lane.leave(place)
    call('HDEL', KEY.bodies, Lane.number(place))
  end
end
Step.publish()
return 1

-- Release: an update that this process still holds goes back to the head of its lane, which goes on after ARGV[5]
-- seconds; ARGV[6] is 1 if an attempt has failed. An old token changes nothing. ARGV[3], ARGV[4]: place and token.

local place = ARGV[3]
if Lane.is_held(place, ARGV[4]) then
  local attempts, crashes = Lane.tries(Lane.number(place))
  Lane.back(place, attempts + tonumber(ARGV[6]), crashes, tonumber(ARGV[5]))
  Step.publish()
end
return 1

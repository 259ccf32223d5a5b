-- Park: an update that this process still holds is given up and kept, and its lane goes on. An old token changes nothing.
-- ARGV[3], ARGV[4]: place and token; ARGV[5]: its key; ARGV[6]: when and why; ARGV[7]: how many of a source are kept.

local place = ARGV[3]
if Lane.is_held(place, ARGV[4]) then
  Lane.leave(place)
  Parked.add(place, ARGV[5], ARGV[6])
  Parked.trim(Lane.source(place), tonumber(ARGV[7]))
  Step.publish()
end
return 1

-- Cool: no answer came for too long: the slots of these calls cool from now on; the claims and turns stay held.
-- ARGV[3]: pairs of id and token, packed.

Step.run_due()
for _, pair in ipairs(unpack_one(ARGV[3])) do
  local entry = Message.entry(pair[1])
  if entry and entry.token == pair[2] and (entry.state or 'sending') == 'sending' then
    Schedule.cool(entry)
    local lane = Lane.at(entry.lane)
    if lane.kind == 'action' then Schedule.settle_lane(lane) end
  end
end
return Step.finish()

-- Cool: no answer came for too long, the slots of these calls cool from now; claims and turns stay held.
-- ARGV[3]: pairs of id and token, packed.

wake()
for _, pair in ipairs(unpack_one(ARGV[3])) do
  local entry = entry_of(pair[1])
  if entry and entry.token == pair[2] then
    cool(entry)
    local lane = lane_at(entry.lane)
    if lane.kind == 'action' then settle_lane(lane) end
  end
end
return done()

-- End turn: the slots of a turn cool from its answer, or are free at once if the call was not made; what the answer says
-- holds for every process. A turn that still waits is taken out of its line; one that has ended changes nothing.
-- ARGV[3]: the ends, packed.

local function settle(turn, ending)
  local lane = Lane.at(turn.lane)
  Flood.apply(lane, turn, ending)
  Schedule.release(turn, lane, Now.time - ending.age, ending.sent, ending.answered)
  Now.turns[turn.id] = false
  Store.later('ZREM', KEY.leases, turn.id)
  Message.apply_to_chat(lane, ending)
  Schedule.settle_lane(lane)
end

Step.run_due()
for _, ending in ipairs(unpack_one(ARGV[3])) do
  local turn = Message.turn_at(ending.id)
  if turn and turn.token then
    settle(turn, ending)
  elseif turn then
    Store.later('ZREM', KEY.leases, turn.id)
    Message.lose_turn(turn)
  end
end
return Step.finish()

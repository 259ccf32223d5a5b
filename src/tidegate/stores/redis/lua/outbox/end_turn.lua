-- End of a turn: its slots cool from its answer, or are free at once if the call was not made; what the answer says
-- holds for every process. A turn that still waits is taken out of its line. One that is over changes nothing.

local function settle(turn, said)
  local lane = Lane.at(turn.lane)
  Flood.hear(lane, turn, said)
  Schedule.release(turn, lane, Now.time - said.age, said.sent, said.answered)
  Now.turns[turn.id] = false
  Store.later('ZREM', KEY.leases, turn.id)
  Message.follow(lane, said)
  Schedule.settle_lane(lane)
end

Step.wake()
for _, said in ipairs(unpack_one(ARGV[3])) do
  local turn = Message.turn_at(said.id)
  if turn and turn.token then
    settle(turn, said)
  elseif turn then
    Store.later('ZREM', KEY.leases, turn.id)
    Message.lose_turn(turn)
  end
end
return Step.done()

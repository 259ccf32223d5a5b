-- End of a turn: its slots cool from its answer, or are free at once if the call was not made; what the answer says
-- holds for every process. A turn that still waits is taken out of its line. One that is over changes nothing.

local function settle(turn, said)
  local lane = lane_at(turn.lane)
  local bot = bot_at(lane.bot)
  if said.refused then
    learn_from_refusal(lane, pool_for(lane, turn.paid), said.refused)
  elseif said.away and now + said.away > (bot.away or 0) then
    bot.away, bot.obstacle = now + said.away, said.reason
  end
  release(turn, lane, now - said.age, said.sent, said.answered)
  turns[turn.id] = false
  later('ZREM', KEY.leases, turn.id)
  if said.alias then
    alias(lane, said.alias)
  elseif said.whole_chat then
    bury(lane, said.reason, said.description, NEVER)
  end
  settle_lane(lane)
end

wake()
for _, said in ipairs(unpack_one(ARGV[3])) do
  local turn = turn_at(said.id)
  if turn and turn.token then
    settle(turn, said)
  elseif turn then
    later('ZREM', KEY.leases, turn.id)
    lose_turn(turn)
  end
end
return done()

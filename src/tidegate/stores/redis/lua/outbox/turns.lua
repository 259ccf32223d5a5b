-- Turns: direct calls, which take their place in the same schedule as messages.

local function ask_for(request)
  local turn = {
    id = request.id, owner = terms.me, level = request.level, cost = request.cost, paid = request.paid,
    lane = Lane.key(request.bot, request.kind, Schedule.current_chat(request.bot, request.chat)),
  }
  if Schedule.grant_at_once(turn, Lane.at(turn.lane)) then
    Now.turns[turn.id] = turn
    Now.answer.granted[turn.id] = turn.token
  elseif request.waits then
    Now.turns[turn.id] = turn
    Now.waiting_turns = Now.waiting_turns + 1
    Store.later('ZADD', KEY.leases, Now.time + terms.lease, turn.id)
    Schedule.join(turn)
  end
end

-- Turn: direct calls, in the order in which they were asked for. One is granted at once if nothing is in its way. Else,
-- if its caller waits (`request.waits`), it stands in its chat's line like a message, until it is granted or its lease
-- runs out. ARGV[3]: the requests, packed.
function Steps.turn()
  Step.run_due()
  Now.answer.granted = {}
  for _, request in ipairs(unpack_one(ARGV[3])) do ask_for(request) end
  if next(Now.answer.granted) == nil then Now.answer.granted = nil end -- an empty table would be packed as a list
  return Step.finish()
end

local function end_granted(turn, ending)
  local lane = Lane.at(turn.lane)
  Flood.apply(lane, turn, ending)
  Schedule.release(turn, lane, Now.time - ending.age, ending.sent, ending.answered)
  Now.turns[turn.id] = false
  Store.later('ZREM', KEY.leases, turn.id)
  Message.apply_to_chat(lane, ending)
  Schedule.settle_lane(lane)
end

-- End turn: the slots of a turn cool from its answer, or are free at once if the call was not made; what the answer says
-- holds for every process. A turn that still waits is taken out of its line; one that has ended changes nothing.
-- ARGV[3]: the ends, packed.
function Steps.end_turn()
  Step.run_due()
  for _, ending in ipairs(unpack_one(ARGV[3])) do
    local turn = Message.turn_at(ending.id)
    if turn and turn.token then
      end_granted(turn, ending)
    elseif turn then
      Store.later('ZREM', KEY.leases, turn.id)
      Message.lose_turn(turn)
    end
  end
  return Step.finish()
end

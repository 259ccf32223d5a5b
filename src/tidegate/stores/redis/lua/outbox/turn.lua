-- Turn: one direct call is granted at once if nothing is in its way; else, if the caller waits
-- (`request.waits`), it stands in its chat's line like a message, until it is granted or its lease runs out.

local request = unpack_one(ARGV[3])
Step.run_due()
local turn = {
  id = request.id, owner = terms.me, level = request.level, cost = request.cost, paid = request.paid,
  lane = Lane.key(request.bot, request.kind, Schedule.current_chat(request.bot, request.chat)),
}
if Schedule.grant_at_once(turn, Lane.at(turn.lane)) then
  Now.turns[turn.id] = turn
  Now.answer.granted = { [turn.id] = turn.token }
elseif request.waits then
  Now.turns[turn.id] = turn
  Now.waiting_turns = Now.waiting_turns + 1
  Store.later('ZADD', KEY.leases, Now.time + terms.lease, turn.id)
  Schedule.join(turn)
end
return Step.finish()

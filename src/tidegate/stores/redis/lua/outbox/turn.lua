-- Turn: the right to make one direct call, granted at once if nothing is in its way; else, if the caller waits
-- (`said.waits`), it stands in its chat's line like a message, until it is granted or its lease runs out.

local said = unpack_one(ARGV[3])
Step.wake()
local turn = {
  id = said.id, owner = terms.me, level = said.level, cost = said.cost, paid = said.paid,
  lane = Lane.key(said.bot, said.kind, Schedule.current_chat(said.bot, said.chat)),
}
if Schedule.grant_at_once(turn, Lane.at(turn.lane)) then
  Now.turns[turn.id] = turn
  Now.answer.granted = { [turn.id] = turn.token }
elseif said.waits then
  Now.turns[turn.id] = turn
  Now.waiting_turns = Now.waiting_turns + 1
  Store.later('ZADD', KEY.leases, Now.time + terms.lease, turn.id)
  Schedule.join(turn)
end
return Step.done()

-- Turn: the right to make one direct call, granted at once if nothing is in its way; else, if the caller waits
-- (`said.waits`), it stands in its chat's line like a message, until it is granted or its lease runs out.

local said = unpack_one(ARGV[3])
wake()
local turn = {
  id = said.id, owner = ME, level = said.level, cost = said.cost, paid = said.paid,
  lane = lane_key(said.bot, said.kind, current_chat(said.bot, said.chat)),
}
if grant_at_once(turn, lane_at(turn.lane)) then
  turns[turn.id] = turn
  answer.granted = { [turn.id] = turn.token }
elseif said.waits then
  turns[turn.id] = turn
  waiting_turns = waiting_turns + 1
  later('ZADD', KEY.leases, exact(now + terms.lease), turn.id)
  join(turn)
end
return done()

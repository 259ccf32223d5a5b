-- Settle: each claim that is still held comes to its end or back to its line, its slots cool from its answer, and what
-- the answer says of limits, closures and chats holds for every process. One that is not held any more (its token is
-- old) changes nothing. ARGV[3]: the settlements, packed; from ARGV[4] on the results they name.

local settled = {}

-- A settlement is a list, which is quicker to read than names; what few have is in a table of its own.
local function named(list)
  local said = {
    id = list[1], token = list[2], age = list[3], sent = list[4], answered = list[5], state = list[6],
    attempts = list[7], delay = list[8], result = nil, reason = nil, description = nil,
  }
  for name, value in pairs(list[9] or Store.NOTHING) do said[name] = value end
  return said
end

local function settle(message, said)
  local lane = Lane.at(message.lane)
  Flood.hear(lane, message, said)
  Schedule.release(message, lane, Now.time - said.age, said.sent, said.answered)
  Store.later('ZREM', KEY.leases, message.id)
  if said.result then message.result = ARGV[3 + said.result] end
  Message.next_state(message, said, true)
  Message.follow(lane, said)
  Schedule.settle_lane(lane)
  if message.lane ~= lane.key then Schedule.settle_lane(Lane.at(message.lane)) end
end

Step.wake()
for i, list in ipairs(unpack_one(ARGV[3])) do
  local message = Message.at(list[1])
  local token = message and message.token
  if token and token == list[2] then
    local held, again = message.state == 'sending', (list[9] or Store.NOTHING).again
    if held then
      settle(message, named(list))
      if not Message.OPEN[message.state] then message.token = token end -- it may be told again
    end
    if held or again then
      local otherwise = message.state ~= list[6] and message.state or false -- it expired
      settled[#settled + 1] = { i, message.created - Now.offset, message.crashes or 0, otherwise }
    end
  end
end
return Step.done({ settled = settled, now = Now.time - Now.offset })

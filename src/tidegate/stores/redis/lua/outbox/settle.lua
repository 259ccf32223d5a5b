-- Claims and turns in flight: how they go on, and how messages are settled.

-- A settlement is a list, which is quicker to read than a table with names; rare fields are in a table of their own.
local function named(list)
  local settlement = {
    id = list[1], token = list[2], age = list[3], sent = list[4], answered = list[5], state = list[6],
    attempts = list[7], delay = list[8], result = nil, reason = nil, description = nil,
  }
  for name, value in pairs(list[9] or Store.NOTHING) do settlement[name] = value end
  return settlement
end

local function settle(message, settlement)
  local lane = Lane.at(message.lane)
  Flood.apply(lane, message, settlement)
  Schedule.release(message, lane, Now.time - settlement.age, settlement.sent, settlement.answered)
  Store.later('ZREM', KEY.leases, message.id)
  if settlement.result then message.result = ARGV[3 + settlement.result] end
  Message.next_state(message, settlement, true)
  Message.apply_to_chat(lane, settlement)
  Schedule.settle_lane(lane)
  if message.lane ~= lane.key then Schedule.settle_lane(Lane.at(message.lane)) end
end

-- Settle: each message that is still held ends or goes back to its line, its slots cool from its answer, and what the
-- answer says of limits, closures and chats holds for every process. A claim with an old token changes nothing.
-- ARGV[3]: the settlements, packed; from ARGV[4] on: the results they name.
function Steps.settle()
  local settled = {}
  Step.run_due()
  for i, list in ipairs(unpack_one(ARGV[3])) do
    local message = Message.at(list[1])
    local token = message and message.token
    if token and token == list[2] then
      local held, again = message.state == 'sending', (list[9] or Store.NOTHING).again
      if held then
        settle(message, named(list))
        if not Message.OPEN[message.state] then message.token = token end -- it may be settled again
      end
      if held or again then
        local otherwise = message.state ~= list[6] and message.state or false -- it has expired meanwhile
        settled[#settled + 1] = { i, message.created - Now.offset, message.crashes or 0, otherwise }
      end
    end
  end
  return Step.finish({ settled = settled, now = Now.time - Now.offset })
end

-- Extend: leases that are still held run anew from now. A turn that waits has one too, as a sign that its process lives.
-- ARGV[3]: pairs of id and token (0: it waits), packed.
function Steps.extend()
  for _, pair in ipairs(unpack_one(ARGV[3])) do
    local entry = Message.entry(pair[1])
    if entry and (entry.token or 0) == pair[2] then
      call('ZADD', KEY.leases, 'XX', Now.time + terms.lease, pair[1])
    end
  end
  return Step.finish()
end

-- Cool: no answer came for too long: the slots of these calls cool from now on; the claims and turns stay held.
-- ARGV[3]: pairs of id and token, packed.
function Steps.cool()
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
end

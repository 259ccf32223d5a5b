-- Scan: a part of all messages, in no order: those that match the filter (ARGV[4], packed), from the cursor ARGV[3] on.
-- The next cursor is 0 at the end. A message that exists during the whole scan is found at least once.

local filter = unpack_one(ARGV[4])
local cursor, fields = unpack(call('HSCAN', KEY.messages, ARGV[3], 'COUNT', 250))
local found = {}

local function matches(message)
  return (not filter.states or filter.states[message.state])
    and (not filter.bot or Message.bot(message) == filter.bot)
    and (not filter.chat or Message.chat(message) == filter.chat)
    and (not filter.reason or message.reason == filter.reason)
    and (not filter.before or (message.settled or message.created) < filter.before + Now.offset)
    and (not filter.dedup or string.sub(message.dedup or '', 1, #filter.dedup) == filter.dedup)
end

for i = 1, #fields, 2 do
  local message = Message.parse(fields[i], fields[i + 1])
  if matches(message) then
    if filter.bare then message.body, message.result = '', nil end
    found[#found + 1] = Message.report(message)
  end
end
return Step.finish({ cursor = cursor, found = found })

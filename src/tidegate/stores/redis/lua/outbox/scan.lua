-- Scan: a part of all messages that are known, in no order: those that fit what is asked for (ARGV[4], packed), from
-- the cursor ARGV[3] on. The next cursor is 0 at the end. What is there all the time is found at least once.

local asked = unpack_one(ARGV[4])
local cursor, fields = unpack(call('HSCAN', KEY.messages, ARGV[3], 'COUNT', 250))
local found = {}

local function fits(message)
  return (not asked.states or asked.states[message.state])
    and (not asked.bot or Message.bot(message) == asked.bot)
    and (not asked.chat or Message.chat(message) == asked.chat)
    and (not asked.reason or message.reason == asked.reason)
    and (not asked.before or (message.settled or message.created) < asked.before + Now.offset)
    and (not asked.dedup or string.sub(message.dedup or '', 1, #asked.dedup) == asked.dedup)
end

for i = 1, #fields, 2 do
  local message = Message.parse(fields[i], fields[i + 1])
  if fits(message) then
    if asked.bare then message.body, message.result = '', nil end
    found[#found + 1] = Message.told(message)
  end
end
return Step.done({ cursor = cursor, found = found })

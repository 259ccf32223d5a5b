-- Letters: dead and parked messages, oldest first, ARGV[4] of them from place ARGV[3] on.

Step.wake()
local found = {}
local first, size = tonumber(ARGV[3]), tonumber(ARGV[4])
for _, id in ipairs(call('ZRANGE', KEY.letters, first, first + size - 1)) do
  local message = Message.peek(id)
  if message then found[#found + 1] = Message.told(message) end
end
return Step.done({ found = found })

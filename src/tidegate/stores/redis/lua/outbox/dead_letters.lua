-- Dead letters: dead and parked messages, the oldest first, ARGV[4] of them from place ARGV[3] on.

Step.run_due()
local found = {}
local first, size = tonumber(ARGV[3]), tonumber(ARGV[4])
for _, id in ipairs(call('ZRANGE', KEY.letters, first, first + size - 1)) do
  local message = Message.peek(id)
  if message then found[#found + 1] = Message.report(message) end
end
return Step.finish({ found = found })

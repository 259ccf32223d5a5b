-- Look: what is known of these messages, after everything that is due has acted. ARGV from 3: their ids.

Step.wake()
local found = {}
for i = 3, #ARGV do
  local message = Message.peek(ARGV[i])
  if message then found[#found + 1] = Message.told(message) end
end
local at = Timers.next_at()
return Step.done({ found = found, delay = at < NEVER and math.max(0, at - Now.time) or nil })

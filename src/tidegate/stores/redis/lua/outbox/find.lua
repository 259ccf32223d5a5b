-- Find: the records of these messages, after everything that is due has acted. From ARGV[3] on: their ids.

Step.run_due()
local found = {}
for i = 3, #ARGV do
  local message = Message.peek(ARGV[i])
  if message then found[#found + 1] = Message.report(message) end
end
local at = Timers.next_at()
return Step.finish({ found = found, delay = at < NEVER and math.max(0, at - Now.time) or nil })

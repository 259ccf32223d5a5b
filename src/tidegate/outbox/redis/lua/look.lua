-- Look: what is known of these messages, after everything that is due has acted. ARGV from 3: their ids.

wake()
local found = {}
for i = 3, #ARGV do
  local message = message_at(ARGV[i])
  if message then found[#found + 1] = told(message) end
end
local at = next_at()
return done({ found = found, delay = at < NEVER and math.max(0, at - now) or nil })

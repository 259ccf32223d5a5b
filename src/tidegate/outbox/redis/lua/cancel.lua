-- Cancel: messages that are not being sent are taken out of their lines. ARGV from 3: their ids.

wake()
local cancelled = 0
for i = 3, #ARGV do
  local message = message_at(ARGV[i])
  if message and waits(message) then
    remove(message)
    finish(message, 'cancelled')
    cancelled = cancelled + 1
  end
end
return done({ count = cancelled })

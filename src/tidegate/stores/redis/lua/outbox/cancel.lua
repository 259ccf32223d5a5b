-- Cancel: messages that are not being sent are taken out of their lines. ARGV from 3: their ids.

Step.wake()
local cancelled = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and Message.waits(message) then
    Schedule.remove(message)
    Message.finish(message, 'cancelled')
    cancelled = cancelled + 1
  end
end
return Step.done({ count = cancelled })

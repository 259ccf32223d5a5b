-- Cancel: messages that wait are taken out of their lines, and end. From ARGV[3] on: their ids. Replies how many.

Step.run_due()
local cancelled = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and Message.waits(message) then
    Schedule.remove(message)
    Message.finish(message, 'cancelled')
    cancelled = cancelled + 1
  end
end
return Step.finish({ count = cancelled })

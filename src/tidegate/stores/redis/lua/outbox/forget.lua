-- Forget: these messages are erased, whether they wait or have ended. Those being sent stay. From ARGV[3] on: their ids.
-- Replies how many.

Step.run_due()
local gone = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and message.state ~= 'sending' then
    if Message.DEAD_LETTER[message.state] then
      call('ZREM', KEY.letters, message.id)
      Store.count(message.state, -1)
    elseif Message.waits(message) then
      Schedule.remove(message)
      Message.finish(message, 'cancelled')
    end
    Message.forget(message)
    gone = gone + 1
  end
end
return Step.finish({ count = gone })

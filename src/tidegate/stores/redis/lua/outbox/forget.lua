-- Forget: these messages are erased, waiting or ended. What is being sent stays. ARGV from 3: their ids.

Step.wake()
local gone = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and message.state ~= 'sending' then
    if Message.LETTER[message.state] then
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
return Step.done({ count = gone })

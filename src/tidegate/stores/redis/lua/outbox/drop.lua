-- Drop: dead and parked messages are forgotten. ARGV from 3: their ids.

Step.wake()
local dropped = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and Message.LETTER[message.state] then
    call('ZREM', KEY.letters, message.id)
    Store.count(message.state, -1)
    Message.forget(message)
    dropped = dropped + 1
  end
end
return Step.done({ count = dropped })

-- Drop: dead and parked messages are forgotten. From ARGV[3] on: their ids. Replies how many.

Step.run_due()
local dropped = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and Message.DEAD_LETTER[message.state] then
    call('ZREM', KEY.letters, message.id)
    Store.count(message.state, -1)
    Message.forget(message)
    dropped = dropped + 1
  end
end
return Step.finish({ count = dropped })

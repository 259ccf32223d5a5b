-- Drop: dead and parked messages are forgotten. ARGV from 3: their ids.

wake()
local dropped = 0
for i = 3, #ARGV do
  local message = message_at(ARGV[i])
  if message and LETTER[message.state] then
    call('ZREM', KEY.letters, message.id)
    count(message.state, -1)
    forget(message)
    dropped = dropped + 1
  end
end
return done({ count = dropped })

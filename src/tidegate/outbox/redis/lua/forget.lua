-- Forget: these messages are erased, waiting or ended. What is being sent stays. ARGV from 3: their ids.

wake()
local gone = 0
for i = 3, #ARGV do
  local message = message_at(ARGV[i])
  if message and message.state ~= 'sending' then
    if LETTER[message.state] then
      call('ZREM', KEY.letters, message.id)
      count(message.state, -1)
    elseif waits(message) then
      remove(message)
      finish(message, 'cancelled')
    end
    forget(message)
    gone = gone + 1
  end
end
return done({ count = gone })

-- Replay: dead and parked messages are queued anew, as if put now. From ARGV[3] on: their ids. Replies how many.

Step.run_due()
local replayed = 0
for i = 3, #ARGV do
  local message = Message.at(ARGV[i])
  if message and Message.DEAD_LETTER[message.state] then
    call('ZREM', KEY.letters, message.id)
    Message.change_state(message, 'queued')
    local bot, kind = string.match(message.lane, '^([^/]+)/([^/]+)/')
    message.lane, message.seq, message.due, message.retry = Lane.key(bot, kind, Message.chat(message)), nil, nil, nil
    message.token = nil
    message.attempts, message.crashes, message.settled, message.reason, message.description = nil, nil, nil, nil, nil
    Store.count(CONSTANT.OPEN_COUNT_PREFIX .. bot, 1)
    Message.add(message)
    replayed = replayed + 1
  end
end
return Step.finish({ count = replayed })

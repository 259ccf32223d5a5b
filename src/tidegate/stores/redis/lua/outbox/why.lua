-- Why: the facts that keep a message (ARGV[3]) from being sent now.

Step.run_due()
local message = Message.peek(ARGV[3])
if message == nil then return Step.finish() end
local facts = { state = message.state, until_due = math.max(0, (message.due or 0) - Now.time) }
if Message.waits(message) then
  local lane = Lane.at(message.lane)
  local line, bot = Lane.line(lane, message.level), Lane.bot_at(lane.bot)
  facts.retry_in = math.max(0, (message.retry or 0) - Now.time)
  if line.id ~= message.id and (message.seq or 0) > 0 then
    local low = Line.range(lane, message.level)
    facts.ahead = 1 + call('ZLEXCOUNT', KEY.queue, low, '(' .. Line.member(lane, message.level, message))
  end
  facts.each = lane.rates[1][2] / lane.rates[1][1]
  facts.in_flight = lane.flight ~= nil
  facts.paused = { bot = bot.paused, chat = lane.paused }
  facts.closed = { bot = math.max(0, (bot.closed or 0) - Now.time), chat = math.max(0, (lane.closed or 0) - Now.time) }
  facts.away, facts.obstacle = math.max(0, (bot.away or 0) - Now.time), bot.obstacle
  facts.full = {}
  if message.cost > 0 then
    local pool = Lane.pool_for(lane, message.paid)
    for i, window in ipairs(lane.open) do
      facts.full[#facts.full + 1] = { 'chat', Window.wait(window, lane.rates[i], message.cost, Now.time) }
    end
    if pool.rule then
      facts.full[#facts.full + 1] = { 'bot', Window.wait(pool.open[1], pool.rates[1], message.cost, Now.time) }
    end
  end
end
return Step.finish({ why = facts })

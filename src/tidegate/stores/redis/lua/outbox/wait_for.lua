-- Wait for: replies the seconds until a call could be made that goes behind all that waits for its chat. Takes nothing.

local request = unpack_one(ARGV[3])
Step.run_due()
local chat = Schedule.current_chat(request.bot, request.chat)
local lane, bot = Lane.at(Lane.key(request.bot, request.kind, chat)), Lane.bot_at(request.bot)
local pool = Lane.pool_for(lane)

-- A wait that ends with an answer is estimated: the answer comes soon, and then the slot cools.
local wait = math.max(0, (lane.closed or 0) - Now.time, (bot.closed or 0) - Now.time)
local function look(window, rate)
  local its = Window.wait(window, rate, request.cost, Now.time)
  wait = math.max(wait, its == NEVER and rate[2] or its)
end
if request.cost > 0 then Lane.each_window(lane, pool, look) end
local ahead = lane.flight and 1 or 0
for _, line in pairs(lane.lines) do
  if line.id then ahead = ahead + 1 + (line.more or 0) end
end
return Step.finish({ wait = math.max(wait, ahead * lane.rates[1][2] / lane.rates[1][1]) })

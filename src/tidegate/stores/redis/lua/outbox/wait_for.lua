-- Wait for: seconds until a call could be made that goes behind what its chat has waiting. Takes nothing.

local said = unpack_one(ARGV[3])
Step.wake()
local chat = Schedule.current_chat(said.bot, said.chat)
local lane, bot = Lane.at(Lane.key(said.bot, said.kind, chat)), Lane.bot_at(said.bot)
local pool = Lane.pool_for(lane)

-- A guess for a wait that ends with an answer: it comes soon, and then the slot cools.
local wait = math.max(0, (lane.closed or 0) - Now.time, (bot.closed or 0) - Now.time)
local function look(window, rate)
  local its = Window.wait(window, rate, said.cost, Now.time)
  wait = math.max(wait, its == NEVER and rate[2] or its)
end
if said.cost > 0 then Lane.each_window(lane, pool, look) end
local ahead = lane.flight and 1 or 0
for _, line in pairs(lane.lines) do
  if line.id then ahead = ahead + 1 + (line.more or 0) end
end
return Step.done({ wait = math.max(wait, ahead * lane.rates[1][2] / lane.rates[1][1]) })

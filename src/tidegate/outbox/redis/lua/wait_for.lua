-- Wait for: seconds until a call could be made that goes behind what its chat has waiting. Takes nothing.

local said = unpack_one(ARGV[3])
wake()
local chat = current_chat(said.bot, said.chat)
local lane, bot = lane_at(lane_key(said.bot, said.kind, chat)), bot_at(said.bot)
local pool = pool_for(lane)

-- A guess for a wait that ends with an answer: it comes soon, and then the slot cools.
local function known(window, rate)
  local wait = Window.wait(window, rate, said.cost, now)
  return wait == NEVER and rate[2] or wait
end

local wait = math.max(0, (lane.closed or 0) - now, (bot.closed or 0) - now)
if said.cost > 0 then
  for _, pair in ipairs(windows_of(lane, pool)) do wait = math.max(wait, known(pair[1], pair[2])) end
end
local ahead = lane.flight and 1 or 0
for _, line in pairs(lane.lines) do
  if line.id then ahead = ahead + 1 + (line.more or 0) end
end
return done({ wait = math.max(wait, ahead * lane.rates[1][2] / lane.rates[1][1]) })

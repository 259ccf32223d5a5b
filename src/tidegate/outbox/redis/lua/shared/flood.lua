-- What a 429 teaches: whom it closes, which limit it cuts, and how that recovers (outbox/flood.py).

local RECENTLY = 1.5

local function tell_learned(place)
  local rate = place.rates[1]
  call('HSET', KEY.learned, learned_name(place), rate[1] .. '/' .. exact(rate[2]))
end

-- Let a learned limit recover, if it is time.
local function step_up(place)
  if not place.learned or not Learned.quiet(place.learned, place.rule, now) then return end
  if place.learned.bad == nil then
    place.learned, place.rates[1] = nil, place.rule
    call('HDEL', KEY.learned, learned_name(place))
  else
    apply_learned(place)
    tell_learned(place)
  end
end

local function cut(place)
  place.learned = place.learned or Learned.new(place.rule)
  Learned.refused(place.learned, place.rule, now)
  apply_learned(place)
  tell_learned(place)
end

-- How full it is, the refused call apart.
local function others(window, rate)
  return (window.held + window.sum - 1) / rate[1]
end

local function fullness(lane)
  local window, rate = lane.open[1], lane.rates[1]
  if rate[1] == 1 then -- the refused call itself is all it holds: look at the one before
    return now - (lane.last or -NEVER) < RECENTLY * rate[2] and 1 or 0
  end
  return others(window, rate)
end

-- A 429 never says its scope. One chat refused closes that chat; several within a window, the bot. Comes before the
-- refused call gives up its slots: how full its limits were is the evidence.
local function learn_from_refusal(lane, pool, retry_after)
  local bot = bot_at(lane.bot)
  lane.closed = math.max(lane.closed or 0, now + retry_after)
  local seconds, several = pool.rule and pool.rates[1][2] or 1, false
  local refused = { [lane.chat] = now }
  for chat, at in pairs(bot.refused or {}) do
    if now - at < seconds and chat ~= lane.chat then
      refused[chat], several = at, true
    end
  end
  bot.refused = refused
  if several then bot.closed = math.max(bot.closed or 0, now + retry_after) end
  if pool.rule and (several or others(pool.open[1], pool.rates[1]) >= fullness(lane)) then
    cut(pool)
  else
    cut(lane)
  end
  count('refused', 1)
end

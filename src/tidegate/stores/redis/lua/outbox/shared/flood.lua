-- What a 429 teaches: whom it closes, which limit it cuts, and how that recovers (outbox/flood.py).

Flood.RECENTLY = 1.5

function Flood.tell(place)
  local rate = place.rates[1]
  call('HSET', KEY.learned, Lane.learned_name(place), rate[1] .. '/' .. Store.exact(rate[2]))
end

-- Let a learned limit recover, if it is time.
function Flood.step_up(place)
  if not place.learned or not Learned.quiet(place.learned, place.rule, Now.time) then return end
  if place.learned.bad == nil then
    place.learned, place.rates[1] = nil, place.rule
    call('HDEL', KEY.learned, Lane.learned_name(place))
  else
    Lane.apply_learned(place)
    Flood.tell(place)
  end
end

function Flood.cut(place)
  place.learned = place.learned or Learned.new(place.rule)
  Learned.refused(place.learned, place.rule, Now.time)
  Lane.apply_learned(place)
  Flood.tell(place)
end

-- How full it is, the refused call apart.
function Flood.others(window, rate)
  return (window.held + window.sum - 1) / rate[1]
end

function Flood.fullness(lane)
  local window, rate = lane.open[1], lane.rates[1]
  if rate[1] == 1 then -- the refused call itself is all it holds: look at the one before
    return Now.time - (lane.last or -NEVER) < Flood.RECENTLY * rate[2] and 1 or 0
  end
  return Flood.others(window, rate)
end

-- A 429 never says its scope. One chat refused closes that chat; several within a window, the bot. Comes before the
-- refused call gives up its slots: how full its limits were is the evidence.
function Flood.learn(lane, pool, retry_after)
  local bot = Lane.bot_at(lane.bot)
  lane.closed = math.max(lane.closed or 0, Now.time + retry_after)
  local seconds, several = pool.rule and pool.rates[1][2] or 1, false
  local refused = { [lane.chat] = Now.time }
  for chat, at in pairs(bot.refused or {}) do
    if Now.time - at < seconds and chat ~= lane.chat then
      refused[chat], several = at, true
    end
  end
  bot.refused = refused
  if several then bot.closed = math.max(bot.closed or 0, Now.time + retry_after) end
  if pool.rule and (several or Flood.others(pool.open[1], pool.rates[1]) >= Flood.fullness(lane)) then
    Flood.cut(pool)
  else
    Flood.cut(lane)
  end
  Store.count('refused', 1)
end

-- What an answer means for limits and closures. Comes before its call is released.
function Flood.hear(lane, entry, said)
  if said.refused then
    Flood.learn(lane, Lane.pool_for(lane, entry.paid), said.refused)
  elseif said.away then
    local bot = Lane.bot_at(lane.bot)
    if Now.time + said.away > (bot.away or 0) then
      bot.away, bot.obstacle = Now.time + said.away, said.reason
    end
  end
end

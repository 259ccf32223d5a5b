-- The effect of a 429: what it closes, which limit it cuts, and how that recovers (`outbox/flood_control.py`).

function Flood.publish(limited)
  local rate = limited.rates[1]
  call('HSET', KEY.learned, Lane.learned_name(limited), rate[1] .. '/' .. Prelude.exact(rate[2]))
end

-- Lets a learned limit recover, if it is time.
function Flood.step_up(limited)
  if not limited.learned or not Learned.quiet(limited.learned, limited.rule, Now.time) then return end
  if limited.learned.bad == nil then
    limited.learned, limited.rates[1] = nil, limited.rule
    call('HDEL', KEY.learned, Lane.learned_name(limited))
  else
    Lane.apply_learned(limited)
    Flood.publish(limited)
  end
end

function Flood.cut(limited)
  limited.learned = limited.learned or Learned.new(limited.rule)
  Learned.refused(limited.learned, limited.rule, Now.time)
  Lane.apply_learned(limited)
  Flood.publish(limited)
end

-- How full a window is, apart from the refused call.
function Flood.others(window, rate)
  return (window.held + window.sum - 1) / rate[1]
end

function Flood.fullness(lane)
  local window, rate = lane.open[1], lane.rates[1]
  if rate[1] == 1 then -- it holds only the refused call: look at the call before
    return Now.time - (lane.last or -NEVER) < CONSTANT.FULL_FOR_WINDOWS * rate[2] and 1 or 0
  end
  return Flood.others(window, rate)
end

-- A 429 does not say its scope. One refused chat closes that chat; several within a window close the bot. Called before
-- the refused call is released: how full its limits were is the evidence.
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

-- The effect of an answer on limits and closures. Called before its call is released.
function Flood.apply(lane, entry, settlement)
  if settlement.refused then
    Flood.learn(lane, Lane.pool_for(lane, entry.paid), settlement.refused)
  elseif settlement.away then
    local bot = Lane.bot_at(lane.bot)
    if Now.time + settlement.away > (bot.away or 0) then
      bot.away, bot.obstacle = Now.time + settlement.away, settlement.reason
    end
  end
end

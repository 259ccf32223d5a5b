-- The effect of a 429: what it closes, which limit it cuts, and how that recovers (`outbox/flood_control.py`).

function Flood.publish(limited)
  local rate = limited.rates[1]
  call('HSET', KEY.learned, Lane.learned_name(limited), rate[1] .. '/' .. Prelude.exact(rate[2]))
end

-- What the caller logs.
function Flood.report(list, news)
  Now.answer[list] = Now.answer[list] or {}
  table.insert(Now.answer[list], news)
end

function Flood.pair(rate)
  return { rate[1], rate[2] }
end

function Flood.report_limit(limited, before, restored)
  Flood.report('limits', {
    bot = tonumber(limited.bot), chat = limited.chat, rule = Flood.pair(limited.rule), before = Flood.pair(before),
    after = Flood.pair(limited.rates[1]), restored = restored,
  })
end

-- Lets a learned limit recover, if it is time.
function Flood.step_up(limited)
  if not limited.learned or not Learned.quiet(limited.learned, limited.rule, Now.time) then return end
  local before, restored = limited.rates[1], limited.learned.bad == nil
  if restored then
    limited.learned, limited.rates[1] = nil, limited.rule
    call('HDEL', KEY.learned, Lane.learned_name(limited))
  else
    Lane.apply_learned(limited)
    Flood.publish(limited)
  end
  local after = limited.rates[1]
  if after[3] and after[2] > before[2] then Window.lengthen(limited.open[1], before, after, Now.time) end
  Flood.report_limit(limited, before, restored)
end

function Flood.cut(limited, in_burst)
  limited.learned = limited.learned or Learned.new(limited.rule)
  local before, step = limited.rates[1], limited.learned.step
  Learned.refused(limited.learned, limited.rule, Now.time, in_burst)
  Lane.apply_learned(limited)
  Flood.publish(limited)
  if limited.learned.step ~= step then Flood.report_limit(limited, before, false) end
end

-- How full a window is, apart from the refused call.
function Flood.others(window, rate)
  return (window.held + window.sum - 1) / rate[1]
end

function Flood.fullness(lane)
  local i = Lane.bursts(lane) and 2 or 1
  local window, rate = lane.open[i], lane.rates[i]
  if rate[1] == 1 then -- it holds only the refused call: look at the call before
    return Now.time - (lane.last or -NEVER) < CONSTANT.FULL_FOR_WINDOWS * rate[2] and 1 or 0
  end
  return Flood.others(window, rate)
end

-- A 429 does not say its scope. One refused chat closes that chat; several within a window close the bot. A reply that
-- exceeded the average of its chat was refused for that. Called before the refused call is released: how full its limits
-- were is the evidence.
function Flood.learn(lane, pool, retry_after)
  local bot = Lane.bot_at(lane.bot)
  lane.closed = math.max(lane.closed or 0, Now.time + retry_after)
  Store.count_of(lane.bot, 'refused', 1)
  if Lane.bursts(lane) and Flood.others(lane.open[2], lane.rates[2]) >= 1 then
    Flood.report('refusals', { bot = tonumber(lane.bot), chat = lane.chat, seconds = retry_after, whole_bot = false })
    Flood.cut(lane, true)
    return
  end
  local seconds, several = pool.rule and pool.rates[1][2] or 1, false
  local refused = { [lane.chat] = Now.time }
  for chat, at in pairs(bot.refused or {}) do
    if Now.time - at < seconds and chat ~= lane.chat then
      refused[chat], several = at, true
    end
  end
  bot.refused = refused
  if several then bot.closed = math.max(bot.closed or 0, Now.time + retry_after) end
  Flood.report('refusals', { bot = tonumber(lane.bot), chat = lane.chat, seconds = retry_after, whole_bot = several })
  if pool.rule and (several or Flood.others(pool.open[1], pool.rates[1]) >= Flood.fullness(lane)) then
    Flood.cut(pool)
  else
    Flood.cut(lane)
  end
end

-- How many messages of a bot have not ended, for the log of the caller.
function Flood.waiting(bot)
  local name = CONSTANT.OPEN_COUNT_PREFIX .. bot
  return tonumber(call('HGET', KEY.counts, name) or 0) + (Now.counted[name] or 0)
end

-- The bot cannot send: nothing goes for `wait` seconds, then one probe at a time, of all processes.
function Flood.hold(id, entry, wait, obstacle)
  local bot = Lane.bot_at(id)
  if not bot.obstacle then
    bot.since, bot.probes, bot.away = Now.time, 0, 0
    Flood.report('outages', { bot = tonumber(id), obstacle = obstacle, waiting = Flood.waiting(id) })
  elseif bot.probe == entry.id then
    bot.probes = (bot.probes or 0) + 1
  end
  if Now.time + wait > (bot.away or 0) then bot.away, bot.obstacle = Now.time + wait, obstacle end
end

-- The bot sends again: what waits may go at the full rate.
function Flood.end_outage(id)
  local bot = Lane.bot_at(id)
  if bot.since then
    Flood.report('outages', { bot = tonumber(id), lasted = Now.time - bot.since, waiting = Flood.waiting(id) })
  end
  bot.away, bot.obstacle, bot.since, bot.probes, bot.probe = nil, nil, nil, nil, nil
  Schedule.activate_all(id)
end

-- The effect of an answer on limits, closures and outages. Called before its call is released.
function Flood.apply(lane, entry, settlement)
  if settlement.refused then Flood.learn(lane, Lane.pool_for(lane, entry.paid), settlement.refused) end
  if settlement.away then
    Flood.hold(lane.bot, entry, settlement.away, settlement.obstacle)
  elseif settlement.answered and not settlement.doubtful and Lane.bot_at(lane.bot).obstacle then
    Flood.end_outage(lane.bot)
  end
end

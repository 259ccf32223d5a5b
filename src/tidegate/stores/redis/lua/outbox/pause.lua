-- Pause: what is queued for a bot (ARGV[3]), or for one chat of it (ARGV[4], else empty), is held or let go (ARGV[5]).
-- Direct calls go on.

Step.wake()
local bot, paused = ARGV[3], ARGV[5] == '1' or nil
if ARGV[4] == '' then
  Lane.bot_at(bot).paused = paused
  for _, budget in ipairs({ 'send', 'edit', 'action', 'paid' }) do
    local pool = Lane.pool_at(bot .. '/' .. budget)
    if not paused and next(pool.ready) ~= nil then Schedule.activate(pool) end
  end
else
  for _, kind in ipairs({ 'send', 'edit', 'action' }) do
    local lane = Lane.at(Lane.key(bot, kind, Schedule.current_chat(bot, ARGV[4])))
    lane.paused = paused
    for level, line in pairs(lane.lines) do
      if line.place ~= nil then Schedule.place(lane, level, line) end
    end
    if not paused then Lane.rest(lane) end
  end
end
return Step.done()

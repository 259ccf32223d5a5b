-- Pause: messages of a bot (ARGV[3]), or of one chat of it (ARGV[4], else empty), are held (ARGV[5] is 1) or go on (0).
-- Direct calls are not affected.

Step.run_due()
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
return Step.finish()

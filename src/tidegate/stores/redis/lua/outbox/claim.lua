-- Claim: up to ARGV[3] messages that may go now, each with its slots taken in every limit, and a lease whose token a
-- settlement has to show. Every turn that may go is granted too. No limit is broken, no lane has two calls in flight,
-- and the number of lines examined is bounded. If nothing can be claimed, the reply says after how long the next call
-- makes sense, and the caller keeps watch until then.
--
-- ARGV[4]: the bots that the caller can send for (empty: all); ARGV[5]: the number of this call; ARGV[6]: the number of
-- the latest call whose answer the caller heard; from ARGV[7] on: turns that it waits for.

local BACKUP = 0.05 -- seconds that other workers come after the one that keeps watch
local ASLEEP = 1 -- seconds after which a worker that did not come back does not count as waiting

local room = tonumber(ARGV[3])
local serves = ARGV[4] ~= '' and {} or nil
for bot in string.gmatch(ARGV[4], '%d+') do serves[bot] = true end
Step.run_due()

-- Messages given by a call whose answer was not heard were not sent, and go back.
local function take_back(heard)
  local stored = call('HGET', KEY.claimed, terms.me)
  local before = stored and unpack_one(stored)
  if not before or before[1] <= heard then return end
  for i = 2, #before, 2 do
    local message = Message.at(before[i])
    if message and message.state == 'sending' and message.token == before[i + 1] then
      local lane = Lane.at(message.lane)
      Schedule.release(message, lane, Now.time, false, false)
      call('ZREM', KEY.leases, message.id)
      Message.change_state(message, 'queued')
      Schedule.again(message, nil)
      Schedule.settle_lane(lane)
    end
  end
end
if tonumber(ARGV[5]) > tonumber(ARGV[6]) + 1 then take_back(tonumber(ARGV[6])) end

local claims, turns_granted, given = {}, {}, { tonumber(ARGV[5]) }
for _, entry in ipairs(Schedule.grant_round(room, serves)) do
  if entry.level >= Level.TURN then
    turns_granted[#turns_granted + 1] = entry
  else
    Message.change_state(entry, 'sending')
    local attempt = (entry.attempts or 0) + 1
    given[#given + 1], given[#given + 2] = entry.id, entry.token
    local bot, probe = Lane.bot_at(Message.bot(entry)), false
    if bot.probe == entry.id then probe = { (bot.probes or 0) + 1, bot.obstacle, Now.time - (bot.since or Now.time) } end
    claims[#claims + 1] = {
      Store.blob(entry.body), entry.token, attempt, entry.id, entry.lane, entry.chat or false, probe,
    }
  end
end
if #claims > 0 then call('HSET', KEY.claimed, terms.me, pack(given)) end
Step.announce_turns(turns_granted)

for i = 7, #ARGV do
  local turn = Message.turn_at(ARGV[i])
  if turn == nil then
    Now.answer.lost = Now.answer.lost or {}
    Now.answer.lost[#Now.answer.lost + 1] = ARGV[i]
  elseif turn.token then
    Now.answer.granted = Now.answer.granted or {}
    Now.answer.granted[turn.id] = turn.token
  end
end

local left = call('ZCARD', KEY.active) > 0 or Schedule.needs_offer()
if left and (#claims > 0 or Now.answer.granted) then Step.wake_processes() end -- there is work for other processes too
if left and room == 0 then Step.wake_worker() end -- for the messages that were left to them
if #claims > 0 then
  Now.answer.delay = nil -- the caller comes back as soon as it can
elseif Now.more or (left and room > 0 and (serves == nil or Now.looked >= Bound.LINES)) then
  Now.answer.delay = 0
else
  if left and room > 0 then -- of bots that the caller does not serve: it was woken instead of another worker
    Now.answer.others = true
    Step.wake_worker()
  end
  local at = Timers.next_at()
  local watched = Now.watch_by and Now.watch_by ~= '' and Now.watch_by ~= terms.me
  if watched and Now.watch_at > Now.time - BACKUP and Now.watch_at <= at then
    at = at + BACKUP
  else
    Now.watch_at, Now.watch_by = at, terms.me
  end
  if at < NEVER then Now.answer.delay = math.max(0, at - Now.time) end
end
if room > 0 then -- it counts as waiting until it comes again, or a little longer
  Now.claimers = #claims == 0 and Now.time + math.min(Now.answer.delay or NEVER, terms.longest_wait) + ASLEEP or 0
end
return Step.finish({ claims = claims }, true)

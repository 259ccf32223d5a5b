-- Claim: up to ARGV[3] messages that may go now, each with its slots taken in every limit, and a lease whose token a
-- settlement has to show. Every turn that may go is granted too. No limit is broken, no lane has two calls in flight;
-- the lines looked at are bounded. From ARGV[4] on: turns that the caller waits for.
-- Without anything to claim it says after how long the next call makes sense, and the caller keeps watch until then.

local BACKUP = 0.05 -- seconds that others come after the one who keeps watch

local ASLEEP = 1 -- seconds after which a worker that did not come back does not count as waiting

local room = tonumber(ARGV[3])
wake()

local claims, turns_granted = {}, {}
for _, entry in ipairs(grant_round(room)) do
  if entry.level >= TURN then
    turns_granted[#turns_granted + 1] = entry
  else
    change_state(entry, 'sending')
    local attempt, chat = (entry.attempts or 0) + 1, string.match(entry.lane, '^[^/]+/[^/]+/(.+)$')
    claims[#claims + 1] = { blob(entry.body), entry.token, attempt, chat }
  end
end
tell_turns(turns_granted)

for i = 4, #ARGV do
  local turn = turn_at(ARGV[i])
  if turn == nil then
    answer.lost = answer.lost or {}
    answer.lost[#answer.lost + 1] = ARGV[i]
  elseif turn.token then
    answer.granted = answer.granted or {}
    answer.granted[turn.id] = turn.token
  end
end

local left = call('ZCARD', KEY.active) > 0
if #claims > 0 or answer.granted then
  if left then rouse() end -- there is work for others too
elseif more or (left and room > 0) then
  answer.delay = 0
else
  local at = next_at()
  if watch_by and watch_by ~= '' and watch_by ~= ME and watch_at > now - BACKUP and watch_at <= at then
    at = at + BACKUP
  else
    watch_at, watch_by = at, ME
  end
  if at < NEVER then answer.delay = math.max(0, at - now) end
end
if room > 0 then -- until it comes again, or a little longer
  claimers = #claims == 0 and now + math.min(answer.delay or NEVER, terms.longest_wait) + ASLEEP or 0
end
return done({ claims = claims }, true)

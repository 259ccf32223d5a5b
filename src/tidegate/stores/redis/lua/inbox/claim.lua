-- Claim: up to ARGV[3] updates of these sources (from ARGV[6] on), the first of each free lane, the earliest first. They
-- belong to this process alone, under the token ARGV[5], until their leases run out. ARGV[4] of them at most are
-- suspects. Before that, updates whose next try is due and those of dead processes are offered, a bounded number.
-- Replies the seconds until there may be more to offer (empty: unknown), then number, attempts, crashes, body and place
-- of each.

local BOUND = 200 -- offered in a call, of each kind

local room, suspects, token = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local function due(key)
  local places = call('ZRANGEBYSCORE', key, '-inf', Step.seconds(Step.time), 'LIMIT', 0, BOUND)
  if #places > 0 then Prelude.call_many('ZREM', key, places) end
  return places
end

-- A Redis that was away, or could not be reached, comes back with leases that nobody could renew: processes that live
-- get the time to do so.
local function just_back()
  local meta = call('HMGET', KEY.outbox, 'restarted', 'offset')
  local ago = meta[1] and Step.wall - (tonumber(meta[1]) - tonumber(meta[2] or 0)) or math.huge
  local woke = tonumber(call('HGET', KEY.meta, 'woke') or 0)
  return (ago >= 0 and ago < CONSTANT.LEASE_SECONDS) or Step.time - woke < CONSTANT.LEASE_SECONDS / 2
end

local function offer_what_is_due()
  for _, place in ipairs(due(KEY.later)) do
    local _, crashes = Lane.tries(Lane.number(place))
    Lane.offer(place, crashes)
  end
  if call('ZCOUNT', KEY.leases, '-inf', Step.seconds(Step.time)) == 0 or just_back() then return end
  for _, place in ipairs(due(KEY.leases)) do
    local attempts, crashes = Lane.tries(Lane.number(place))
    Lane.back(place, attempts, crashes + 1, 0)
  end
end

local function offered(key, limit, found)
  for i = 6, limit > 0 and #ARGV or 0 do
    local from = ARGV[i] .. '\0'
    for _, offer in ipairs(call('ZRANGEBYLEX', key, '[' .. from, '(' .. ARGV[i] .. '\1', 'LIMIT', 0, limit)) do
      found[#found + 1] = { key, offer, string.sub(offer, #from + 1, #from + Prelude.DIGITS) }
    end
  end
end

local function earliest()
  local found = {}
  offered(KEY.ready, room, found)
  offered(KEY.suspects, math.min(suspects, room), found)
  table.sort(found, function(one, other) return one[3] < other[3] end)
  return found
end

local function take(key, offer, number)
  local place = Lane.place_of(offer)
  call('ZREM', key, offer)
  Lane.lease(place)
  call('HSET', KEY.held, number, token)
  local body, attempts, crashes = call('HGET', KEY.bodies, number), Lane.tries(number)
  if body then return { number, attempts, crashes, body, place } end
  Lane.leave(place) -- this Redis evicts data when its memory is full, and has done so
  return nil
end

local function next_due()
  local soonest = math.huge
  for _, key in ipairs({ KEY.later, KEY.leases }) do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] then soonest = math.min(soonest, tonumber(first[2])) end
  end
  return soonest < math.huge and Step.seconds(math.max(0, soonest - Step.time)) or ''
end

offer_what_is_due()
local claimed = {}
for _, one in ipairs(earliest()) do
  local is_suspect = one[1] == KEY.suspects
  if #claimed < room and not (is_suspect and suspects == 0) then
    if is_suspect then suspects = suspects - 1 end
    claimed[#claimed + 1] = take(unpack(one))
  end
end
Step.publish()
return { next_due(), claimed }

-- How every step begins. The keys are of one poller: `meta` has its watermark and the last number that was given,
-- `numbers` orders its subscriptions, `bodies` has them, `met` those that are watched, `news` what is to be told.
--
-- ARGV[1] is the time (empty: Redis's own, which is what processes with different clocks share).

local META, NUMBERS, BODIES, MET, NEWS, LEASE = unpack(KEYS)
local call = redis.call

local function now()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local time = call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end

-- Numbers follow the time, in microseconds. A Redis that comes back without its last second would else give some of
-- them again, and who has read up to there would never see whom they were given to.
local function number_anew(key)
  local last = math.max(tonumber(call('HGET', META, 'last') or 0), math.floor(now() * 1e6))
  local number = string.format('%.0f', last + 1)
  call('ZADD', NUMBERS, number, key)
  call('HSET', META, 'last', number)
end

-- Whether this is the one with that number; the empty number is anybody's.
local function is_same(key, number)
  return number == '' or tonumber(call('ZSCORE', NUMBERS, key) or 0) == tonumber(number)
end

local function lease()
  local till, holder = string.match(call('GET', LEASE) or '', '^(%S+) (.*)$')
  return tonumber(till), holder
end

local function another_polls(me)
  local till, holder = lease()
  return holder ~= nil and holder ~= me and till > now()
end

local function forget(key)
  call('HDEL', BODIES, key)
  call('HDEL', NEWS, key)
  call('SREM', MET, key)
  return call('ZREM', NUMBERS, key)
end

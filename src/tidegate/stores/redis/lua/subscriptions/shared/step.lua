-- What the steps of one poller share. `meta` has its watermark and the last number given, `numbers` orders its
-- subscriptions, `bodies` holds them, `met` names those that are watched, `news` holds what they are to be told.

local Subscription = {}

-- Numbers follow the time, in microseconds. Otherwise a Redis that comes back without its last second would give some
-- of them again, and whoever has read up to there would never see the new owners.
function Subscription.number_anew(key)
  local last = math.max(tonumber(call('HGET', KEY.meta, 'last') or 0), math.floor(Prelude.wall_time() * 1e6))
  local number = string.format('%.0f', last + 1)
  call('ZADD', KEY.numbers, number, key)
  call('HSET', KEY.meta, 'last', number)
end

-- Whether the subscription has this number; the empty number fits any.
function Subscription.has_number(key, number)
  return number == '' or tonumber(call('ZSCORE', KEY.numbers, key) or 0) == tonumber(number)
end

function Subscription.another_polls(me)
  return Lease.is_held_by_another(KEY.lease, me, Prelude.wall_time())
end

function Subscription.forget(key)
  call('HDEL', KEY.bodies, key)
  call('HDEL', KEY.news, key)
  call('SREM', KEY.met, key)
  return call('ZREM', KEY.numbers, key)
end

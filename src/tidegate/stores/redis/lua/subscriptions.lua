-- The subscriptions of one poller. `meta` has its watermark and the last number given, `numbers` orders its
-- subscriptions, `bodies` holds them, `met` names those that are watched, `news` holds what they are to be told.

local Subscription = {}

-- Numbers follow the time, in microseconds. Otherwise a Redis that comes back without its last second would give some
-- of them again, and a reader that is past them would never see the new subscriptions.
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

-- Add: all of these subscriptions wait, each with a number greater than any given before. Replies 1 for each that is
-- new, 0 for one that was there. Fails, and changes nothing, if memory is full.
--
-- ARGV[2]: 1 if those that are there are replaced, 0 if they stay as they are. Then four for each: key, body, 1 if it is
-- watched (else 0), and what it is to be told (or empty).
function Steps.add()
  local replaces, fresh = ARGV[2] == '1', {}

  for i = 3, #ARGV, 4 do
    local key, body, met, news = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local is_new = call('HEXISTS', KEY.bodies, key) == 0
    if is_new or replaces then
      call('HSET', KEY.bodies, key, body) -- the first write: Redis refuses it when memory is full
      Subscription.number_anew(key)
      if met == '1' then call('SADD', KEY.met, key) else call('SREM', KEY.met, key) end
      if news ~= '' then call('HSET', KEY.news, key, news) else call('HDEL', KEY.news, key) end
    end
    fresh[#fresh + 1] = is_new and 1 or 0
  end
  return fresh
end

-- Remove: from ARGV[2] on, two for each: key, and the number that it must have (empty: any). Nothing of them is left.
-- Replies how many there were. Works when memory is full.
function Steps.remove()
  local removed = 0
  for i = 2, #ARGV, 2 do
    if Subscription.has_number(ARGV[i], ARGV[i + 1]) then removed = removed + Subscription.forget(ARGV[i]) end
  end
  return removed
end

-- After: up to ARGV[3] subscriptions with a number greater than ARGV[2], rising, at one instant. Replies number, key,
-- body, whether it is watched, and what it is to be told, of each.
function Steps.after()
  local found = {}
  local page = call('ZRANGEBYSCORE', KEY.numbers, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
  for i = 1, #page, 2 do
    local key = page[i]
    local body, met, news = call('HGET', KEY.bodies, key), call('SISMEMBER', KEY.met, key), call('HGET', KEY.news, key)
    found[#found + 1] = { page[i + 1], key, body, met, news }
  end
  return found
end

-- Note news: the news of each subscription that it concerns is kept until it is delivered, unless it has some already:
-- of two processes that found the same, one is answered. Fails, and changes nothing, if memory is full.
--
-- ARGV[2] is the caller: while another polls, nothing is noted, and the reply is 0. From ARGV[3] on, three for each:
-- key, kind, news. Replies of those concerned: its place in the call (from 0), number, body, and whether it is watched.
function Steps.note_news()
  if Subscription.another_polls(ARGV[2]) then return 0 end
  local found = {}
  for i = 3, #ARGV, 3 do
    local key, kind = ARGV[i], ARGV[i + 1]
    local body, met = call('HGET', KEY.bodies, key), call('SISMEMBER', KEY.met, key)
    local concerns = kind == 'gone' or (kind == 'reversed') == (met == 1)
    if body and concerns and call('HSETNX', KEY.news, key, ARGV[i + 2]) == 1 then
      found[#found + 1] = { (i - 3) / 3, call('ZSCORE', KEY.numbers, key), body, met }
    end
  end
  return found
end

-- Settle news: subscriptions whose news was delivered have it no more. They are forgotten, watched, or wait again with a
-- new number, as ARGV[3] says. One without news was added anew meanwhile, and stays as it is. Works when memory is full.
--
-- ARGV[2] is the caller: while another polls, nothing changes, and the reply is 0. From ARGV[4] on, two for each: key,
-- and the number that it must have (empty: any).
function Steps.settle_news()
  if Subscription.another_polls(ARGV[2]) then return 0 end
  for i = 4, #ARGV, 2 do
    local key = ARGV[i]
    if Subscription.has_number(key, ARGV[i + 1]) and call('HDEL', KEY.news, key) == 1 then
      if ARGV[3] == 'forget' then
        Subscription.forget(key)
      elseif ARGV[3] == 'watch' then
        call('SADD', KEY.met, key)
      else
        call('SREM', KEY.met, key)
        Subscription.number_anew(key)
      end
    end
  end
  return 1
end

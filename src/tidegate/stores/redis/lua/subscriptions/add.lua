-- Add: all of these subscriptions wait, each with a number greater than any given before. Replies 1 for each that is
-- new, 0 for one that was there. Fails, and changes nothing, if memory is full.
--
-- ARGV[2]: 1 if those that are there are replaced, 0 if they stay as they are. Then four for each: key, body, 1 if it is
-- watched (else 0), and what it is to be told (or empty).

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

-- After: up to ARGV[3] subscriptions with a number greater than ARGV[2], rising, at one instant. Replies number, body,
-- whether it is watched, and what it is to be told, of each.

local found = {}
local page = call('ZRANGEBYSCORE', KEY.numbers, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for i = 1, #page, 2 do
  local key = page[i]
  local body, met, news = call('HGET', KEY.bodies, key), call('SISMEMBER', KEY.met, key), call('HGET', KEY.news, key)
  found[#found + 1] = { page[i + 1], body, met, news }
end
return found

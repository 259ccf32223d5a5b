-- Add: all of these wait, each with a number greater than any that was given before. Replies 1 for each that is new, 0
-- for one that was there. Fails, and changes nothing, if memory is full.
--
-- ARGV[2]: whether those that are there are replaced (1) or stay as they are (0). Then four for each: key, body,
-- whether it is watched (1 or 0), and what it is to be told, if anything.

local replaces, fresh = ARGV[2] == '1', {}

for i = 3, #ARGV, 4 do
  local key, body, met, news = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local is_new = call('HEXISTS', BODIES, key) == 0
  if is_new or replaces then
    call('HSET', BODIES, key, body)  -- first, since it is refused when memory is full; what follows is not any more
    number_anew(key)
    if met == '1' then call('SADD', MET, key) else call('SREM', MET, key) end
    if news ~= '' then call('HSET', NEWS, key, news) else call('HDEL', NEWS, key) end
  end
  fresh[#fresh + 1] = is_new and 1 or 0
end
return fresh

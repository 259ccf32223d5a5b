-- Note news: the news of each subscription that it concerns is kept until it is delivered, unless it has some already:
-- of two processes that found the same, one is answered. Fails, and changes nothing, if memory is full.
--
-- ARGV[2] is the caller: while another polls, nothing is noted, and the reply is 0. From ARGV[3] on, three for each:
-- key, kind, news. Replies of those concerned: its place in the call (from 0), number, body, and whether it is watched.

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

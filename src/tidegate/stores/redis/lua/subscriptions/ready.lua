-- Ready: what is to be told is noted for each whom it concerns and who has no news yet: of two processes that found the
-- same, one is answered. Fails, and changes nothing, if memory is full.
--
-- ARGV[2] is who found it: while another polls, nothing is noted, and the reply is 0. From ARGV[3] on, three for each:
-- key, kind, news. Replies of those whom it concerns: which, counted from 0, number, body, and whether it is watched.

if another_polls(ARGV[2]) then return 0 end
local found = {}
for i = 3, #ARGV, 3 do
  local key, kind = ARGV[i], ARGV[i + 1]
  local body, met = call('HGET', BODIES, key), call('SISMEMBER', MET, key)
  local concerns = kind == 'gone' or (kind == 'reversed') == (met == 1)
  if body and concerns and call('HSETNX', NEWS, key, ARGV[i + 2]) == 1 then
    found[#found + 1] = { (i - 3) / 3, call('ZSCORE', NUMBERS, key), body, met }
  end
end
return found

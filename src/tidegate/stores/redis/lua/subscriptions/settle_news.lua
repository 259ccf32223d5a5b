-- Settle news: subscriptions whose news was delivered have it no more. They are forgotten, watched, or wait again with a
-- new number, as ARGV[3] says. One without news was added anew meanwhile, and stays as it is. Works when memory is full.
--
-- ARGV[2] is the caller: while another polls, nothing changes, and the reply is 0. From ARGV[4] on, two for each: key,
-- and the number that it must have (empty: any).

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

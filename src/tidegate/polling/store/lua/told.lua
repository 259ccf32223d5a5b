-- Told: from ARGV[3] on, keys. Those that have news have it no more: they are forgotten, watched, or wait again, as
-- ARGV[2] says; who waits again has a new number. Others stay as they are: somebody added them anew. Works when memory is full.

for i = 3, #ARGV do
  local key = ARGV[i]
  if call('HDEL', NEWS, key) == 1 then
    if ARGV[2] == 'forget' then
      forget(key)
    elseif ARGV[2] == 'watch' then
      call('SADD', MET, key)
    else
      call('SREM', MET, key)
      number_anew(key)
    end
  end
end
return 1

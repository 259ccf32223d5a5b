-- Told: by ARGV[2]. From ARGV[4] on, two for each: key, and the number that it must have (empty: any). Those that have
-- news have it no more: they are forgotten, watched, or wait again, as ARGV[3] says; who waits again has a new number.
-- Others stay as they are: somebody added them anew. Replies 0, and changes nothing, while another polls. Works when
-- memory is full.

if another_polls(ARGV[2]) then return 0 end
for i = 4, #ARGV, 2 do
  local key = ARGV[i]
  if is_same(key, ARGV[i + 1]) and call('HDEL', NEWS, key) == 1 then
    if ARGV[3] == 'forget' then
      forget(key)
    elseif ARGV[3] == 'watch' then
      call('SADD', MET, key)
    else
      call('SREM', MET, key)
      number_anew(key)
    end
  end
end
return 1

-- Exchange: every field of a hash gets a new value, all or none. Nothing is changed, and 0 returned, unless the hash
-- holds what the caller has read: ARGV[1] fields, each followed by its old and its new value.

if redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[1]) then return 0 end
for i = 2, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) ~= ARGV[i + 1] then return 0 end
end
for i = 2, #ARGV, 3 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
return 1

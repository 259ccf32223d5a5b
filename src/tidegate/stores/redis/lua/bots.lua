-- Registered bots: a hash of their encrypted tokens by their ids.

-- Replace all: every field of a hash gets a new value, all or none. Nothing is changed, and 0 returned, unless the hash
-- holds what the caller has read: ARGV[2] fields, each followed by its old and its new value.
function Steps.replace_all()
  if call('HLEN', KEY.tokens) ~= tonumber(ARGV[2]) then return 0 end
  for i = 3, #ARGV, 3 do
    if call('HGET', KEY.tokens, ARGV[i]) ~= ARGV[i + 1] then return 0 end
  end
  for i = 3, #ARGV, 3 do call('HSET', KEY.tokens, ARGV[i], ARGV[i + 2]) end
  return 1
end

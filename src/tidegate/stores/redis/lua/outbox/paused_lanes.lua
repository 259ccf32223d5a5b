-- Held: a part of the lanes, in no order: the keys of those that are paused, from the cursor ARGV[1] on, after the next
-- cursor, which is 0 at the end. Changes nothing. KEYS[1]: the lanes, as lanes.lua keeps them: what few have comes first.

local cursor, fields = unpack(redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 500))
local found = { cursor }
for i = 1, #fields, 2 do
  local rare = cmsgpack.unpack(fields[i + 1])
  if rare and rare.paused then found[#found + 1] = fields[i] end
end
return found

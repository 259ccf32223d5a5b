-- Paused lanes: the keys of the paused lanes among a part of all, in no order. Changes nothing. ARGV[2]: the cursor from
-- which to go on; the reply begins with the next one, which is 0 at the end. A lane is kept as `outbox/shared/lanes.lua`
-- writes it: its rare fields come first.

local cursor, fields = unpack(call('HSCAN', KEY.lanes, ARGV[2], 'COUNT', 500))
local found = { cursor }
for i = 1, #fields, 2 do
  local rare = unpack_one(fields[i + 1])
  if rare and rare.paused then found[#found + 1] = fields[i] end
end
return found

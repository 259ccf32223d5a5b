-- A lease has one holder until an instant. Its key holds both as text, "<until> <holder>": whether it has ended is
-- decided by that time alone, and Redis's own expiry only clears it away later. One that cannot be read has ended.

local Lease = {}

function Lease.read(key)
  local till, holder = string.match(call('GET', key) or '', '^(%S+) (.*)$')
  till = tonumber(till)
  return till, till and holder
end

function Lease.is_held_by_another(key, me, time)
  local till, holder = Lease.read(key)
  return holder ~= nil and holder ~= me and till > time
end

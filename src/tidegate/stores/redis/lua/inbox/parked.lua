-- Parked: up to ARGV[4] parked updates, the newest first, of one source (ARGV[3]) or of all (empty). Replies the body,
-- and when and why it was parked, of each.

local names
if ARGV[3] == '' then
  names = call('ZREVRANGE', KEY.letters, 0, tonumber(ARGV[4]) - 1)
else
  local from, to = '[' .. ARGV[3] .. '\0', '(' .. ARGV[3] .. '\1'
  names = call('ZREVRANGEBYLEX', KEY.letters_of, to, from, 'LIMIT', 0, ARGV[4])
end
local found = {}
for _, name in ipairs(names) do
  local number = Parked.number(name)
  local body, reason = call('HGET', KEY.bodies, number), call('HGET', KEY.reasons, number)
  if body and reason then found[#found + 1] = { body, reason } end
end
return found

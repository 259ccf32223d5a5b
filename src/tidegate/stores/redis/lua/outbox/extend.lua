-- Extend: leases that are still held run anew from now. A turn that waits has one too, as a sign that its process lives.
-- ARGV[3]: pairs of id and token (0: it waits), packed.

for _, pair in ipairs(unpack_one(ARGV[3])) do
  local entry = Message.entry(pair[1])
  if entry and (entry.token or 0) == pair[2] then
    call('ZADD', KEY.leases, 'XX', Now.time + terms.lease, pair[1])
  end
end
return Step.finish()

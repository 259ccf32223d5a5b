-- Take back: all updates given under these tokens (from ARGV[3] on) go back to the heads of their lanes, as if they had
-- never been claimed: the caller did not hear the answer. Reads all leases: they are few, and this happens seldom.

local tokens = {}
for i = 3, #ARGV do tokens[ARGV[i]] = true end
for _, place in ipairs(call('ZRANGE', KEY.leases, 0, -1)) do
  if tokens[call('HGET', KEY.held, Lane.number(place))] then
    local attempts, crashes = Lane.tries(Lane.number(place))
    Lane.back(place, attempts, crashes, 0)
  end
end
Step.publish()
return 1

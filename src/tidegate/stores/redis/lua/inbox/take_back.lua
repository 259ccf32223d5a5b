-- Take back: all that was given under these tokens (from ARGV[3] on) goes back to the head of its lane, as if it had
-- never been claimed: whoever asked did not hear the answer. Looks at all that is held, which is not much, and seldom.

local tokens = {}
for i = 3, #ARGV do tokens[ARGV[i]] = true end
for _, place in ipairs(call('ZRANGE', KEY.leases, 0, -1)) do
  if tokens[call('HGET', KEY.held, Lane.number(place))] then
    local attempts, crashes = Lane.tries(Lane.number(place))
    Lane.back(place, attempts, crashes, 0)
  end
end
Step.tell()
return 1

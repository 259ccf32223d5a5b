-- Stats: how many messages are where, after everything that is due has acted.

Step.wake()
local counts = {}
local fields = call('HGETALL', KEY.counts)
for i = 1, #fields, 2 do counts[fields[i]] = tonumber(fields[i + 1]) end
for name, change in pairs(Now.counted) do counts[name] = (counts[name] or 0) + change end
return Step.done({ counts = counts })

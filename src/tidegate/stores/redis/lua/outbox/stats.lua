-- Stats: how many messages there are in each state, after everything that is due has acted.

Step.run_due()
local counts = {}
local fields = call('HGETALL', KEY.counts)
for i = 1, #fields, 2 do counts[fields[i]] = tonumber(fields[i + 1]) end
for name, change in pairs(Now.counted) do counts[name] = (counts[name] or 0) + change end
return Step.finish({ counts = counts })

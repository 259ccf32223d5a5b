-- How every step of the inbox begins and ends: the time, the numbers, and the message to processes that wait.
--
-- ARGV[2] is the calling process. The first FIXED keys are the same for each step; keys that differ from call to call
-- (`seen`) come after them.

local Step = { sources = {} } -- whose lanes this step has freed

function Step.seconds(time)
  return string.format('%.6f', time)
end

-- Only what stores updates must fail when memory is full. Handling goes on, and makes room.
if STEP == 'accept' or STEP == 'bring' then Prelude.fail_when_full() else Prelude.work_when_full() end

do
  local meta = call('HMGET', KEY.meta, 'last', 'offset')
  local last, offset = tonumber(meta[1] or 0), nil
  Step.time, offset, Step.wall = Prelude.steady_time(last, meta[2])
  -- A running process asks every second. After a longer silence Redis could not be reached, and nobody could renew.
  if last > 0 and Step.time - last > 4 then call('HSET', KEY.meta, 'woke', Step.seconds(Step.time)) end
  call('HSET', KEY.meta, 'last', Step.seconds(Step.time), 'offset', Step.seconds(offset))
end

function Step.next_number()
  return string.format('%.0f', Prelude.FIRST_NUMBER + call('HINCRBY', KEY.meta, 'numbers', 1))
end

-- The end of every step that may have freed a lane: processes that handle these sources are woken.
function Step.publish()
  local sources = {}
  for source in pairs(Step.sources) do sources[#sources + 1] = source end
  if #sources > 0 then call('PUBLISH', KEY.channel, ARGV[2] .. '\n' .. table.concat(sources, '\n')) end
end

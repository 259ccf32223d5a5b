-- The times at which there is something to do, soonest first. A timer that means nothing any more is dropped when due.

function Timers.set(at, kind, what)
  call('ZADD', KEY.timers, at, kind .. what)
  if at < Now.earliest then Now.earliest = at end
end

-- When the next step may have something to do.
function Timers.next_at()
  local soonest = NEVER
  for _, place in ipairs({ { KEY.timers, 0 }, { KEY.leases, 0 }, { KEY.resting, 1 } }) do
    local first = call('ZRANGE', place[1], 0, 0, 'WITHSCORES')
    if first[2] then soonest = math.min(soonest, tonumber(first[2]) + place[2]) end
  end
  return soonest
end

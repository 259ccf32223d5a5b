-- The updates that a process holds: how their handling goes on, and how it ends.

-- Done: updates that this process still holds are forgotten, and their lanes go on. An old token changes nothing: the
-- update was given to another process meanwhile. From ARGV[3] on: place and token of each.
function Steps.done()
  for i = 3, #ARGV, 2 do
    local place = ARGV[i]
    if Lane.is_held(place, ARGV[i + 1]) then
      Lane.leave(place)
      call('HDEL', KEY.bodies, Lane.number(place))
    end
  end
  Step.publish()
  return 1
end

-- Release: an update that this process still holds goes back to the head of its lane, which goes on after ARGV[5]
-- seconds; ARGV[6] is 1 if an attempt has failed. An old token changes nothing. ARGV[3], ARGV[4]: place and token.
function Steps.release()
  local place = ARGV[3]
  if Lane.is_held(place, ARGV[4]) then
    local attempts, crashes = Lane.tries(Lane.number(place))
    Lane.back(place, attempts + tonumber(ARGV[6]), crashes, tonumber(ARGV[5]))
    Step.publish()
  end
  return 1
end

-- Park: an update that this process still holds is given up and kept, and its lane goes on. An old token changes nothing.
-- ARGV[3], ARGV[4]: place and token; ARGV[5]: its key; ARGV[6]: when and why; ARGV[7]: how many of a source are kept.
function Steps.park()
  local place = ARGV[3]
  if Lane.is_held(place, ARGV[4]) then
    Lane.leave(place)
    Parked.add(place, ARGV[5], ARGV[6])
    Parked.trim(Lane.source(place), tonumber(ARGV[7]))
    Step.publish()
  end
  return 1
end

-- Renew: updates that this process still holds are its own for another lease. From ARGV[3] on: place and token of each.
-- Replies which of them, counted from 0, are not held any more.
function Steps.renew()
  local lost = {}
  for i = 3, #ARGV, 2 do
    if Lane.is_held(ARGV[i], ARGV[i + 1]) then
      Lane.lease(ARGV[i])
    else
      lost[#lost + 1] = (i - 3) / 2
    end
  end
  return lost
end

-- Take back: all updates given under these tokens (from ARGV[3] on) go back to the heads of their lanes, as if they had
-- never been claimed: the caller did not hear the answer. Reads all leases: they are few, and this happens seldom.
function Steps.take_back()
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
end

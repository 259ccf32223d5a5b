-- A limit of n calls in W seconds as n slots, each free again W seconds after the answer to its call.
-- `pacing/window.py` says why that never breaks a limit. Everything here is a calculation.
--
-- A window is {held = slots of calls in flight, cooling = {time, slots, time, slots, …}}, times rising; it is stored as
-- {held, time, slots, …}. A rate is {count, seconds}, with a third value if it is that of a burst: `Window.part`. The time does
-- not move within a script: slots that have cooled are dropped when the window is opened.

local Window = {}
Window.TICK = 1e-6 -- seconds: as fine as Redis's clock is, so that rounding never frees a slot too early
Window.FINEST = 128 -- slots up to which each is stored by itself

function Window.open(stored, now)
  if not stored then return { held = 0, cooling = {}, sum = 0 } end
  local cooling, last, sum = {}, 0, 0
  for i = 2, #stored, 2 do
    if stored[i] > now then
      cooling[last + 1], cooling[last + 2] = stored[i], stored[i + 1]
      last, sum = last + 2, sum + stored[i + 1]
    end
  end
  return { held = stored[1], cooling = cooling, sum = sum }
end

-- The window as it is stored; nil if it is idle.
function Window.stored(window)
  if window.held == 0 and window.sum == 0 then return nil end
  return { window.held, unpack(window.cooling) }
end

function Window.free(window, rate)
  return rate[1] - window.held - window.sum
end

-- What a call takes at most of a burst, which leaves room for what follows. It is half of the limit as it is set: what
-- is sent while less is learned counts when that is raised.
function Window.part(count)
  return math.max(1, math.floor(count / 2))
end

-- The slots that one call takes at most.
function Window.largest(rate)
  return rate[3] and math.min(rate[1], rate[3]) or rate[1]
end

-- Whether a call of this cost may be made now. A call larger than the window needs it empty.
function Window.fits(window, rate, cost)
  local free = rate[1] - window.held - window.sum
  return free >= (cost <= 1 and cost or math.min(cost, Window.largest(rate)))
end

-- Seconds until the call fits if nobody takes a slot; infinite if an answer has to come first.
function Window.wait(window, rate, cost, now)
  if Window.fits(window, rate, cost) then return 0 end
  local lacking = math.min(cost, Window.largest(rate)) - Window.free(window, rate)
  for i = 1, #window.cooling, 2 do
    lacking = lacking - window.cooling[i + 1]
    if lacking <= 0 then return window.cooling[i] - now end
  end
  return math.huge
end

-- Slots cool until that time.
local function cool(window, free_at, slots)
  window.sum = window.sum + slots
  local cooling = window.cooling
  local place = #cooling + 1
  while place > 1 and cooling[place - 2] > free_at do place = place - 2 end
  if place > 1 and cooling[place - 2] == free_at then
    cooling[place - 1] = cooling[place - 1] + slots
  else
    table.insert(cooling, place, slots)
    table.insert(cooling, place, free_at)
  end
end

-- Changes to a rate of more seconds. Calls that the window has forgotten may count in them: it begins full.
function Window.lengthen(window, from, to, now)
  local shift = to[2] - from[2]
  for i = 1, #window.cooling, 2 do window.cooling[i] = window.cooling[i] + shift end
  cool(window, now + shift, to[1])
end

-- The window, as it was stored under a rate, under another one. `memory`: the seconds for which calls were remembered.
-- A time at which all slots get free may stand for a call larger than the window was: it fills the new one.
function Window.reshape(stored, from, memory, to, now)
  local shift = to[2] - memory
  if from[3] then shift = math.max(0, shift) end -- while it learned, its seconds were others
  local window = Window.open(stored, now - math.max(0, shift))
  local changed = { window.held }
  for i = 1, #window.cooling, 2 do
    local slots = window.cooling[i + 1]
    if to[1] > from[1] and slots >= Window.largest(from) then slots = math.max(slots, to[1]) end
    changed[#changed + 1], changed[#changed + 2] = window.cooling[i] + shift, slots
  end
  window = Window.open(changed, now)
  -- While it had learned, it forgot calls sooner: in a longer one they may count still.
  if memory < from[2] and shift > 0 then cool(window, now + shift, to[1]) end
  return window
end

function Window.take(window, _, cost)
  window.held = window.held + cost
end

-- The call was never sent: its slots are free at once.
function Window.give_back(window, _, cost)
  window.held = math.max(0, window.held - cost) -- a process with other rules may have dropped what it did not know
end

-- The answer came after the slots had begun to cool: the call may have been counted only now.
function Window.answered_late(window, rate, at, cost, now)
  window.held = window.held + cost
  Window.answered(window, rate, at, cost, now)
end

-- The answer came: the slots start to cool. A call larger than the window fills it for longer.
function Window.answered(window, rate, at, cost, now)
  window.held = math.max(0, window.held - cost)
  local count, seconds = rate[1], rate[2]
  local free_at = at + seconds + Window.TICK
  if cost > 1 then
    local largest = Window.largest(rate)
    free_at = at + seconds * math.max(1, cost / largest) + Window.TICK
    -- It takes all slots that it costs, more than there are, too: the limit may be raised while they cool.
    if rate[3] then cost = math.min(cost, largest) end
  end
  if count > Window.FINEST or #window.cooling > 2 * Window.FINEST then
    -- Slots of a large window, or of one that urgent calls overfill, are freed in steps, a little later than they could
    -- be: the list stays short.
    local step = seconds / Window.FINEST
    free_at = math.ceil(free_at / step) * step
  end
  if free_at > now then cool(window, free_at, cost) end
end

-- Slots that cool in one window cool in the other from now on. Calls in flight stay where they will be answered.
function Window.merge(into, other)
  local times = {}
  for _, window in ipairs({ into, other }) do
    for i = 1, #window.cooling, 2 do
      times[#times + 1] = { window.cooling[i], window.cooling[i + 1] }
    end
  end
  table.sort(times, function(one, two) return one[1] < two[1] end)
  into.cooling, into.sum = {}, into.sum + other.sum
  for i, pair in ipairs(times) do
    into.cooling[2 * i - 1], into.cooling[2 * i] = pair[1], pair[2]
  end
  other.cooling, other.sum = {}, 0
end

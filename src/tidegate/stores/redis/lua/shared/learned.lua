-- What a limit really allows, learned from the 429s it drew: the ladder of pacing/learned.py, step by step.
-- A learned limit is {step, bad, interval, probing, cut_at, next_up}; `rule` is {count, seconds}.

local Learned = {}
Learned.CUT = 0.85
Learned.STRETCH = 1.25
Learned.LOWEST = -20
Learned.STEP_UP_AFTER = 10
Learned.PROBE_AFTER = 60
Learned.PROBE_AT_MOST = 6 * 3600
Learned.FORGET_AFTER = 3600

function Learned.new(rule)
  return { step = rule[1], interval = Learned.PROBE_AFTER, cut_at = -math.huge, next_up = math.huge }
end

-- What to allow now.
function Learned.rate(learned, rule)
  local step = math.min(learned.step, rule[1]) -- the rule may have been lowered since
  return { math.max(1, step), rule[2] * Learned.STRETCH ^ math.max(0, 1 - step) }
end

-- Whether it is so old that starting from the rule again is as good.
function Learned.stale(learned, now)
  return learned.bad == nil or now - learned.cut_at > Learned.FORGET_AFTER
end

-- Seconds to stay on this step.
local function patience(learned, rule)
  local below_bad = learned.bad == nil or learned.step + 1 < learned.bad
  if below_bad and not learned.probing then
    return Learned.STEP_UP_AFTER * Learned.rate(learned, rule)[2]
  end
  return learned.interval
end

-- A 429 was blamed on this limit: cuts once in a window.
function Learned.refused(learned, rule, now)
  if now - learned.cut_at < Learned.rate(learned, rule)[2] then return end
  learned.step = math.min(learned.step, rule[1]) -- the rule may have been lowered since
  learned.cut_at = now
  learned.bad = learned.step
  if learned.probing then
    learned.step = learned.step - 1 -- what was there before the probe was good
    learned.interval = math.min(2 * learned.interval, Learned.PROBE_AT_MOST)
  else
    local cut = learned.step * Learned.CUT
    cut = cut >= 0 and math.floor(cut) or math.ceil(cut)
    learned.step = math.max(Learned.LOWEST, math.min(cut, learned.step - 1))
  end
  learned.probing = nil
  learned.next_up = now + patience(learned, rule)
end

-- Time has passed: go a step up if it is due. Whether something changed.
function Learned.quiet(learned, rule, now)
  if now < learned.next_up then return false end
  learned.step = math.min(learned.step, rule[1])
  if learned.probing then
    -- The step held for a whole interval: it is not bad. Above it everything is to be tried anew.
    learned.interval = Learned.PROBE_AFTER
    learned.bad = learned.step < rule[1] and learned.step + 1 or nil
  end
  if learned.bad == nil then
    learned.probing, learned.next_up = nil, math.huge
  else
    learned.step = learned.step + 1
    learned.probing = learned.step >= learned.bad or nil
    learned.next_up = now + patience(learned, rule)
  end
  return true
end

-- A limit as learned from its 429s: the ladder of `pacing/learned.py`, step by step.
-- A learned limit is {step, bad, interval, probing, cut_at, next_up}; `rule` is {count, seconds}, with a third value
-- for a burst: its steps keep the average.

local Learned = {}

function Learned.new(rule)
  return { step = rule[1], interval = CONSTANT.PROBE_AFTER, cut_at = -math.huge, next_up = math.huge }
end

-- The rate allowed now.
function Learned.rate(learned, rule)
  local step = math.min(learned.step, rule[1]) -- the rule may have been lowered since
  local count, seconds = math.max(1, step), rule[2] * CONSTANT.STRETCH ^ math.max(0, 1 - step)
  if rule[3] then seconds = seconds * count / rule[1] end
  return { count, seconds, rule[3] }
end

-- What holds of it under another rule; nil if nothing does, as its steps mean other rates.
function Learned.rebased(learned, from, to)
  if from[2] ~= to[2] or from[3] ~= to[3] then return nil end
  learned.step = math.min(learned.step, to[1])
  if learned.bad and learned.bad > to[1] then
    learned.bad, learned.probing = learned.step < to[1] and to[1] or nil, nil
  end
  return learned.bad and learned or nil
end

-- Whether it is so old that starting again from the rule is as good.
function Learned.stale(learned, now)
  return learned.bad == nil or now - learned.cut_at > CONSTANT.FORGET_AFTER
end

-- Seconds to stay on this step.
function Learned.patience(learned, rule)
  local below_bad = learned.bad == nil or learned.step + 1 < learned.bad
  if below_bad and not learned.probing then
    return CONSTANT.STEP_UP_AFTER * Learned.rate(learned, rule)[2]
  end
  return learned.interval
end

-- A 429 is blamed on this limit: cuts it once in a window. `in_burst`: the refused call exceeded the average.
function Learned.refused(learned, rule, now, in_burst)
  if now - learned.cut_at < Learned.rate(learned, rule)[2] then return end
  learned.step = math.min(learned.step, rule[1]) -- the rule may have been lowered since
  learned.cut_at = now
  if rule[3] and not in_burst and learned.step > 1 then
    learned.step, learned.probing = 1, nil -- what was refused is the average
  end
  learned.bad = learned.step
  if learned.probing then
    learned.step = learned.step - 1 -- the step before the probe was good
    learned.interval = math.min(2 * learned.interval, CONSTANT.PROBE_AT_MOST)
  elseif rule[3] and learned.step > 1 then
    learned.step = 1 -- the burst is over
  else
    local cut = learned.step * CONSTANT.CUT
    cut = cut >= 0 and math.floor(cut) or math.ceil(cut)
    learned.step = math.max(CONSTANT.LOWEST, math.min(cut, learned.step - 1))
  end
  learned.probing = nil
  learned.next_up = now + Learned.patience(learned, rule)
end

-- Time has passed: goes a step up if that is due. Returns whether something changed.
function Learned.quiet(learned, rule, now)
  if now < learned.next_up then return false end
  learned.step = math.min(learned.step, rule[1])
  if learned.probing then
    -- The step held for a whole interval: it is not bad. Every step above it is tried anew.
    learned.interval = CONSTANT.PROBE_AFTER
    learned.bad = learned.step < rule[1] and learned.step + 1 or nil
  end
  if learned.bad == nil then
    learned.probing, learned.next_up = nil, math.huge
  else
    learned.step = learned.step + 1
    learned.probing = learned.step >= learned.bad or nil
    learned.next_up = now + Learned.patience(learned, rule)
  end
  return true
end

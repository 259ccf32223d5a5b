-- The throttle: buckets of users and chats, with the same arithmetic as `stores/memory/throttle.py`. A key lives as long
-- as it makes a difference: until the bucket is full, and the window and the pause are over.

local ROUNDING = 1e-6 -- seconds: what a time since the epoch, a double, may be off by
local FIRST, FIELDS = 8, 8 -- the place in ARGV of the first update, and how many values each has

local function number(text) return tonumber(text) or 0 end

local today = Prelude.wall_time()
local now = today -- for the update that is charged
local user_rate = { count = number(ARGV[2]), seconds = number(ARGV[3]) }
local chat_rate = { count = number(ARGV[4]), seconds = number(ARGV[5]) }
local stubborn, pause = number(ARGV[6]), number(ARGV[7])

local function passes() return { 1, 0, '0' } end

local function throttled(answer, wait) return { 0, answer and 1 or 0, Prelude.exact(wait) } end

-- The instant at which a bucket is full again (GCRA), and the seconds to wait if there is too little in it.
-- `at` is the time of the last update charged. Time does not go back: late updates may be mixed with others.
local function look(rate, full_at, at, cost)
  local time = math.max(now, at)
  local after = math.max(full_at, time) + cost * rate.seconds / rate.count
  local wait = after - rate.seconds - time
  if wait <= ROUNDING then return after, 0 end
  return full_at, wait
end

local function keep_until(key, instant)
  call('PEXPIRE', key, math.ceil((instant - now) * 1000) + 1000)
end

local function read_user(key)
  local known = call(
    'HMGET', key, 'full_at', 'window', 'held', 'answered', 'pause', 'album', 'album_until', 'album_free', 'at')
  return {
    full_at = number(known[1]), window = number(known[2]), held = number(known[3]), answered = number(known[4]),
    pause = number(known[5]), album = known[6] or '', album_until = number(known[7]), album_free = number(known[8]),
    at = number(known[9]),
  }
end

local function save_user(key, user_state)
  user_state.at = math.max(user_state.at, now)
  local fields = {}
  for name, value in pairs(user_state) do
    if value ~= 0 and value ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = type(value) == 'number' and Prelude.exact(value) or value
    end
  end
  call('DEL', key)
  call('HSET', key, unpack(fields))
  keep_until(key, math.max(user_state.full_at, user_state.window, user_state.pause, user_state.album_until))
end

local function read_chat(key)
  local full_at, at = string.match(call('GET', key) or '', '^(%S+) (%S+)$')
  return number(full_at), number(at)
end

local function save_chat(key, full_at, at)
  call('SET', key, Prelude.exact(full_at) .. ' ' .. Prelude.exact(math.max(at, now)))
  keep_until(key, full_at)
end

local function strike(user_state, weight, wait, may_answer)
  if user_state.window <= now then
    user_state.window, user_state.held, user_state.answered = now + user_rate.seconds, 0, 0
  end
  user_state.held = user_state.held + weight
  if user_state.held >= stubborn and pause > 0 then
    -- The window goes on: a short pause must not lead to a second answer.
    wait = math.max(wait, pause)
    user_state.held, user_state.pause = 0, now + wait
  end
  local answer = may_answer and user_state.answered == 0
  if answer then user_state.answered = 1 end
  return answer, wait
end

-- The verdict that a pause, or an earlier part of the same album, has given already.
local function decided(user_state, album)
  if user_state.pause > now then return throttled(false, user_state.pause - now) end
  if album == '' or user_state.album ~= album or user_state.album_until <= now then return nil end
  if user_state.album_free == 0 then return passes() end
  return throttled(false, math.max(0, user_state.album_free - now))
end

local function charge(user, chat, cost, never_held, may_answer, album, weight, mode)
  local user_state = user and read_user(user)
  local user_after, user_wait, chat_after, chat_wait, chat_full_at, chat_at = 0, 0, 0, 0, 0, 0
  if user then user_after, user_wait = look(user_rate, user_state.full_at, user_state.at, cost) end
  if chat then
    chat_full_at, chat_at = read_chat(chat)
    chat_after, chat_wait = look(chat_rate, chat_full_at, chat_at, cost)
  end
  if never_held then
    -- Charged only as far as something is left: what passes anyway makes no debt.
    if user and user_wait == 0 then
      user_state.full_at = user_after
      save_user(user, user_state)
    end
    if chat and chat_wait == 0 then save_chat(chat, chat_after, chat_at) end
    return passes()
  end

  if mode == 'full' then
    local answer, wait = false, user_rate.seconds / user_rate.count
    if user then
      answer, wait = strike(user_state, weight, wait, may_answer)
      save_user(user, user_state)
    end
    return throttled(answer, wait)
  end

  local before = user and decided(user_state, album)
  if before then return before end
  local answer, wait = false, math.max(user_wait, chat_wait)
  if mode == 'wait' and wait > 0 then return throttled(false, user_wait > 0 and user_wait or chat_wait) end
  if user_wait > 0 then
    answer, wait = strike(user_state, weight, user_wait, may_answer)
  elseif chat_wait == 0 then
    if user then user_state.full_at = user_after end
    if chat then save_chat(chat, chat_after, chat_at) end
  end
  if user and album ~= '' then
    user_state.album, user_state.album_until = album, now + CONSTANT.ALBUM_SECONDS
    user_state.album_free = wait > 0 and now + wait or 0
  end
  if user and (user_wait > 0 or chat_wait == 0 or album ~= '') then save_user(user, user_state) end
  return wait > 0 and throttled(answer, wait) or passes()
end

-- Charge: updates are charged to their users and chats, in order, as one step: for each, both buckets are taken from, or
-- none if it is throttled. Replies for each whether it passes, whether to answer, and the seconds to wait.
--
-- KEYS: for each update the key of its user and that of its chat (where there is none: the other one, left alone).
-- ARGV[2] to ARGV[7]: the limits. Then eight for each update: whom it is charged to ("u", "c", "uc"), its cost, whether
-- it always passes, whether an answer is allowed, its album, the seconds by which it is late, how much it counts
-- towards a pause if it is throttled, and its mode: "drop"; "wait", without a strike; "full", a strike whatever is left.
function Steps.charge()
  local verdicts = {}
  for i = 1, #KEYS / 2 do
    local at = FIRST + (i - 1) * FIELDS
    local who = ARGV[at]
    now = today - number(ARGV[at + 5])
    verdicts[i] = charge(
      who ~= 'c' and KEYS[2 * i - 1], who ~= 'u' and KEYS[2 * i],
      number(ARGV[at + 1]), ARGV[at + 2] == '1', ARGV[at + 3] == '1', ARGV[at + 4],
      number(ARGV[at + 6]), ARGV[at + 7]
    )
  end
  return verdicts
end

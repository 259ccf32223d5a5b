-- Updates are charged to their users and chats, in order, as one step: for each both are taken, or, if it is held, none.
-- Returns for each whether it passes, whether to answer, and the seconds to wait. The same arithmetic as memory.py.
--
-- KEYS: for each update that of its user and that of its chat (where there is none: the other one, left alone).
-- ARGV: the time, the limits, and for each update whom it is charged to ("u", "c", "uc"), its cost, what may be done,
-- its album, and the seconds by which it is late.
-- A key lives as long as it makes a difference: until the bucket is full, the window and the pause are over.

local ALBUM = 60
local ROUNDING = 1e-6 -- seconds: what a time since the epoch, a double, may be off by
local FIELDS = 6 -- of an update, in ARGV

local function number(text) return tonumber(text) or 0 end

local today = tonumber(ARGV[1])
if not today then
  local time = redis.call('TIME')
  today = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local now = today -- for the update that is charged
local user_rate = { count = number(ARGV[2]), seconds = number(ARGV[3]) }
local chat_rate = { count = number(ARGV[4]), seconds = number(ARGV[5]) }
local stubborn, pause = number(ARGV[6]), number(ARGV[7])
local FIRST = 8

local function text(value) return string.format('%.17g', value) end

local function passes() return { 1, 0, '0' } end

local function held(answer, wait) return { 0, answer and 1 or 0, text(wait) } end

-- The instant at which a bucket is full again (GCRA), and the seconds to wait if there is too little in it.
-- `at`: as of when it is known. Time does not go back: what is late may be mixed with what is not.
local function look(rate, full_at, at, cost)
  local time = math.max(now, at)
  local after = math.max(full_at, time) + cost * rate.seconds / rate.count
  local wait = after - rate.seconds - time
  if wait <= ROUNDING then return after, 0 end
  return full_at, wait
end

local function keep_until(key, instant)
  redis.call('PEXPIRE', key, math.ceil((instant - now) * 1000) + 1000)
end

local function read_person(key)
  local known = redis.call('HMGET', key, 'full_at', 'window', 'held', 'answered', 'pause', 'album', 'album_until', 'album_free', 'at')
  return {
    full_at = number(known[1]), window = number(known[2]), held = number(known[3]), answered = number(known[4]),
    pause = number(known[5]), album = known[6] or '', album_until = number(known[7]), album_free = number(known[8]),
    at = number(known[9]),
  }
end

local function keep_person(key, person)
  person.at = math.max(person.at, now)
  local fields = {}
  for name, value in pairs(person) do
    if value ~= 0 and value ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = type(value) == 'number' and text(value) or value
    end
  end
  redis.call('DEL', key)
  redis.call('HSET', key, unpack(fields))
  keep_until(key, math.max(person.full_at, person.window, person.pause, person.album_until))
end

local function read_chat(key)
  local full_at, at = string.match(redis.call('GET', key) or '', '^(%S+) (%S+)$')
  return number(full_at), number(at)
end

local function keep_chat(key, full_at, at)
  redis.call('SET', key, text(full_at) .. ' ' .. text(math.max(at, now)))
  keep_until(key, full_at)
end

local function strike(person, wait, may_answer)
  if person.window <= now then
    person.window, person.held, person.answered = now + user_rate.seconds, 0, 0
  end
  person.held = person.held + 1
  if person.held >= stubborn and pause > 0 then
    -- The window goes on: a short pause must not bring a second answer.
    wait = math.max(wait, pause)
    person.held, person.pause = 0, now + wait
  end
  local answer = may_answer and person.answered == 0
  if answer then person.answered = 1 end
  return answer, wait
end

-- By a pause, or by the part of an album that came before.
local function decided(person, album)
  if person.pause > now then return held(false, person.pause - now) end
  if album == '' or person.album ~= album or person.album_until <= now then return nil end
  if person.album_free == 0 then return passes() end
  return held(false, math.max(0, person.album_free - now))
end

local function charge(user, chat, cost, never_held, may_answer, album)
  local person = user and read_person(user)
  local user_after, user_wait, chat_after, chat_wait, chat_full_at, chat_at = 0, 0, 0, 0, 0, 0
  if user then user_after, user_wait = look(user_rate, person.full_at, person.at, cost) end
  if chat then
    chat_full_at, chat_at = read_chat(chat)
    chat_after, chat_wait = look(chat_rate, chat_full_at, chat_at, cost)
  end
  if never_held then
    -- Counted as far as there is something left: what passes anyway makes no debts.
    if user and user_wait == 0 then
      person.full_at = user_after
      keep_person(user, person)
    end
    if chat and chat_wait == 0 then keep_chat(chat, chat_after, chat_at) end
    return passes()
  end

  local before = user and decided(person, album)
  if before then return before end
  local answer, wait = false, math.max(user_wait, chat_wait)
  if user_wait > 0 then
    answer, wait = strike(person, user_wait, may_answer)
  elseif chat_wait == 0 then
    if user then person.full_at = user_after end
    if chat then keep_chat(chat, chat_after, chat_at) end
  end
  if user and album ~= '' then
    person.album, person.album_until, person.album_free = album, now + ALBUM, wait > 0 and now + wait or 0
  end
  if user and (user_wait > 0 or chat_wait == 0 or album ~= '') then keep_person(user, person) end
  return wait > 0 and held(answer, wait) or passes()
end

local verdicts = {}
for i = 1, #KEYS / 2 do
  local at = FIRST + (i - 1) * FIELDS
  local who = ARGV[at]
  now = today - number(ARGV[at + 5])
  verdicts[i] = charge(
    who ~= 'c' and KEYS[2 * i - 1], who ~= 'u' and KEYS[2 * i],
    number(ARGV[at + 1]), ARGV[at + 2] == '1', ARGV[at + 3] == '1', ARGV[at + 4]
  )
end
return verdicts

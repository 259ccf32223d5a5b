-- Sessions of one flow. `sessions` holds each as "<version>:<body>", `timers` orders those with a timer by its time,
-- `unfinished` names those with pending effects, `seen` has the events that the application named, by age. `unreadable`
-- holds sessions that could not be read, as they were stored.

-- Load: the stored session, or nothing, and whether the event is known (1 or 0).
--
-- ARGV[2]: key of the session; [3]: event, or empty.
function Steps.load()
  local is_seen = ARGV[3] ~= '' and call('ZSCORE', KEY.seen, ARGV[2] .. ':' .. ARGV[3])
  return { call('HGET', KEY.sessions, ARGV[2]) or '', is_seen and 1 or 0 }
end

-- Commit: replace a session with its timer and its pending mark, or remove it, and note an event as seen. Replies with the
-- new version, 0 for a session that was removed, or -1, with nothing changed, if the stored version is not the expected
-- one. Fails, and changes nothing, if memory is full, unless it removes.
--
-- ARGV[2]: key; [3]: expected version; [4]: body, empty to remove; [5]: time of the timer, or empty; [6]: 1 if effects are
-- pending; [7]: event, or empty; [8]: the time at which it was seen.
function Steps.commit()
  local key, expected, body, timer, event = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]
  local stored = call('HGET', KEY.sessions, key)
  if (stored and string.match(stored, '^%d+') or '0') ~= expected then return -1 end

  local version = 0
  if body == '' then
    call('HDEL', KEY.sessions, key)
  else
    version = tonumber(expected) + 1
    call('HSET', KEY.sessions, key, version .. ':' .. body)
  end
  if timer ~= '' then call('ZADD', KEY.timers, timer, key) else call('ZREM', KEY.timers, key) end
  if ARGV[6] == '1' then call('SADD', KEY.unfinished, key) else call('SREM', KEY.unfinished, key) end
  if event ~= '' then call('ZADD', KEY.seen, ARGV[8], key .. ':' .. event) end
  return version
end

-- Due: the sessions whose timer is due, the earliest first: key and stored session in turn.
--
-- ARGV[2]: now; [3]: how many at most.
function Steps.due()
  local found = {}
  for _, key in ipairs(call('ZRANGEBYSCORE', KEY.timers, '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])) do
    found[#found + 1] = key
    found[#found + 1] = call('HGET', KEY.sessions, key) or ''
  end
  return found
end

-- Set aside: sessions that cannot be read move to `unreadable`, unless they have changed, without their timer and pending
-- mark. In their places they would hide the timers of others, and ring for ever. Replies how many were moved.
--
-- ARGV[2], [3], and so on: key and stored session in turn.
function Steps.set_aside()
  local moved = 0
  for i = 2, #ARGV, 2 do
    local key, stored = ARGV[i], ARGV[i + 1]
    if (call('HGET', KEY.sessions, key) or '') == stored then
      call('ZREM', KEY.timers, key)
      call('SREM', KEY.unfinished, key)
      call('HDEL', KEY.sessions, key)
      if stored ~= '' then
        call('HSET', KEY.unreadable, key, stored)
        moved = moved + 1
      end
    end
  end
  return moved
end

-- Timers: how many are set, and the time of the first after ARGV[2], or nothing.
function Steps.timers()
  local first = call('ZRANGEBYSCORE', KEY.timers, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return { call('ZCARD', KEY.timers), first[2] or '' }
end

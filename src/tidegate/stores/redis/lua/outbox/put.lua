-- Put: all messages of the call are accepted, or none. An id or a dedup key that is known gives the earlier ticket and
-- stores nothing; a waiting message with the same coalesce key is replaced in its place. Fails, and changes nothing, if
-- memory is full.
--
-- ARGV[3]: the messages as lists, packed; from ARGV[4] on their bodies.

local tickets = {}

-- A message is a list, which is quicker to read than a table with names; rare fields are in a table of their own.
local function named(list)
  local item = { id = list[1], bot = list[2], chat = list[3], kind = list[4], level = list[5], cost = list[6] }
  for name, value in pairs(list[7] or Store.NOTHING) do item[name] = value end
  -- Given in wall time, stored in the steady time of the store.
  item.due, item.expires = item.due and item.due + Now.offset, item.expires and item.expires + Now.offset
  return item
end

local function first_with_key(item)
  if not item.dedup then return nil end
  local known = call('HGET', KEY.dedup, item.dedup)
  if known then
    local first, till = unpack(unpack_one(known))
    if Now.time < till then return first end
  end
  call('HSET', KEY.dedup, item.dedup, pack({ item.id, Now.time + item.dedup_for }))
  return nil
end

-- The older message that this one replaces, if it is not being sent.
local function waiting_with_key(item)
  local id = item.coalesce and call('HGET', KEY.coalesce, item.coalesce)
  local older = id and Message.at(id)
  return older and Message.waits(older) and older or nil
end

-- The newer message takes the place in line of the older, which ends.
local function replace(older, message)
  local lane = Lane.at(older.lane)
  local line = lane.lines[older.level]
  message.seq, message.retry = older.seq, older.retry
  if line.id == older.id then
    line.id, line.cost = message.id, message.cost
    if line.place == Place.SUSPECT then Schedule.place(lane, message.level, line) end
  else
    call('ZREM', KEY.queue, Line.member(lane, older.level, older))
    call('ZADD', KEY.queue, 0, Line.member(lane, message.level, message))
  end
  if message.expires then Timers.set(message.expires, 'E', message.id) end
  Message.finish(older, 'replaced')
end

local function accept(item, body)
  if Now.messages[item.id] or call('HEXISTS', KEY.messages, item.id) == 1 then
    return { item.id, 0 } -- the caller asks again because it did not hear the answer
  end
  local first = first_with_key(item)
  if first then return { first, 0 } end
  local bot, kind, chat = item.bot, item.kind, item.chat
  local current = Schedule.current_chat(bot, chat)
  local message = {
    id = item.id, state = 'queued', body = body, chat = chat ~= current and chat or nil, level = item.level,
    urgent_as = item.urgent_as, lane = Lane.key(bot, kind, current), cost = item.cost, paid = item.paid,
    created = Now.time, due = item.due, expires = item.expires, park = item.park, dedup = item.dedup,
    dedup_until = item.dedup and Now.time + item.dedup_for, coalesce = item.coalesce, number = Store.next_number(),
    counting = Now.counting,
  }
  Now.messages[item.id] = message
  Message.order(message)
  Message.count(message, 1)
  Message.note_age(message, true)
  Store.count(CONSTANT.OPEN_COUNT_PREFIX .. bot, 1)
  local older = waiting_with_key(item)
  local in_line = (item.due or 0) <= Now.time
  if older and in_line and (older.seq or 0) > 0 and older.lane == message.lane and older.level == message.level
    and older.paid == message.paid then
    replace(older, message)
  else
    if older then
      Schedule.remove(older)
      Message.finish(older, 'replaced')
    end
    Message.add(message)
  end
  if item.coalesce then call('HSET', KEY.coalesce, item.coalesce, item.id) end
  return { item.id, 1 }
end

Step.run_due()
for i, list in ipairs(unpack_one(ARGV[3])) do
  tickets[i] = accept(named(list), ARGV[3 + i])
end
return Step.finish({ tickets = tickets })

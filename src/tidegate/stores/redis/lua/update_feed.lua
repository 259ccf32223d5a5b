-- The update feed of one bot. `updates` orders what is held by its number; a member is "<number> <kind> <chat> <when it
-- arrived>", so that a step which looks for kinds, chats or old updates reads no bodies. `bodies` has those by number,
-- `seen` the numbers of late updates by Telegram's own ids, `readers` the readers by name. `bots` names all feeds.
--
-- ARGV[2] is the bot; [3] the seconds for which updates are kept, and readers that are not seen; [4] how many updates,
-- and [5] how many readers a bot may have.

local Feed, Reader = {}, {}
local BOT, KEEP, MOST, MOST_READERS = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local PAGE, PAGES = 1000, 5 -- updates that are examined at a time, and how often in a step: Redis is for others too

function Feed.last() return tonumber(call('HGET', KEY.meta, 'last') or 0) end

function Feed.text(number) return string.format('%.0f', number) end

-- Number, kind, chat and time of arrival of a member.
function Feed.parts(member)
  local number, kind, chat, at = string.match(member, '^(%d+) (%S+) (%S*) (%S+)$')
  return tonumber(number), kind, chat, tonumber(at)
end

-- The updates from this number on, rising, a page of them.
function Feed.page(from, before)
  return call('ZRANGEBYSCORE', KEY.updates, Feed.text(from), before or '+inf', 'LIMIT', 0, PAGE)
end

function Feed.delete(members)
  if #members == 0 then return end
  local numbers = {}
  for i = 1, #members do numbers[i] = Feed.text(Feed.parts(members[i])) end
  Prelude.call_many('HDEL', KEY.bodies, numbers)
  Prelude.call_many('ZREM', KEY.updates, members)
end

-- What every reader has confirmed. What is more than a step deletes goes with the next ones.
function Feed.delete_confirmed(readers)
  local lowest = NEVER
  for _, reader in pairs(readers) do lowest = math.min(lowest, reader.position) end
  for _ = 1, lowest < NEVER and PAGES or 0 do
    local members = Feed.page(0, '(' .. Feed.text(lowest))
    if #members == 0 then return end
    Feed.delete(members)
  end
end

-- What is too old or too much. Returns how many updates each reader loses, and the readers that are forgotten.
function Feed.drop_old(readers)
  local since, lost, forgotten = Prelude.wall_time() - KEEP, {}, {}
  for name, reader in pairs(readers) do
    if not reader.url and reader.seen_at < since then
      call('HDEL', KEY.readers, name)
      forgotten[#forgotten + 1] = name
    end
  end
  for _, name in ipairs(forgotten) do readers[name] = nil end
  local excess, gone = call('ZCARD', KEY.updates) - MOST, {}
  for place, member in ipairs(call('ZRANGE', KEY.updates, 0, math.max(excess, 0))) do
    local _, _, _, at = Feed.parts(member)
    if place <= excess or at < since then gone[place] = member else break end
  end
  if #gone > math.max(excess, 0) then -- the oldest that could stay is too old: perhaps there are more
    for place, member in ipairs(call('ZRANGE', KEY.updates, #gone, #gone + PAGE)) do
      local _, _, _, at = Feed.parts(member)
      if at >= since then break end
      gone[#gone + 1] = member
    end
  end
  for _, member in ipairs(gone) do
    local number, kind = Feed.parts(member)
    for name, reader in pairs(readers) do
      if number >= reader.position and Reader.wants(reader, kind) then lost[name] = (lost[name] or 0) + 1 end
    end
  end
  Feed.delete(gone)
  local told = {}
  for name, count in pairs(lost) do
    told[#told + 1] = name
    told[#told + 1] = count
  end
  return { told, forgotten }
end

function Reader.wants(reader, kind)
  if reader.kinds == '' then return CONSTANT.ON_REQUEST[kind] == nil end
  return string.find(',' .. reader.kinds .. ',', ',' .. kind .. ',', 1, true) ~= nil
end

function Reader.all()
  local readers, stored = {}, call('HGETALL', KEY.readers)
  for i = 1, #stored, 2 do readers[stored[i]] = unpack_one(stored[i + 1]) end
  return readers
end

-- Makes the feed, if there is none.
function Feed.begin()
  if call('SADD', KEY.bots, BOT) == 1 then
    Reader.save(CONSTANT.DEFAULT_READER, Reader.begin(CONSTANT.DEFAULT_READER, 0, 0, Prelude.wall_time()))
  end
end

function Reader.count() return call('HLEN', KEY.readers) end

function Reader.save(name, reader)
  call('HSET', KEY.readers, name, pack(reader))
end

function Reader.begin(name, offset, last, time)
  local position = name == CONSTANT.DEFAULT_READER and 0 or last + 1
  if offset > 1 then position = math.min(offset, last + 1) end
  return { position = position, kinds = '', poll = '', seen_at = time }
end

-- The number of the n-th last update that the reader wants, or of the earliest if there are fewer. At most PAGES pages of
-- updates are examined.
function Reader.nth_last(reader, n)
  local found, till = reader.position, '+inf'
  for _ = 1, PAGES do
    local page = call('ZREVRANGEBYSCORE', KEY.updates, till, Feed.text(reader.position), 'LIMIT', 0, PAGE)
    for _, member in ipairs(page) do
      local number, kind = Feed.parts(member)
      if Reader.wants(reader, kind) then
        found, n = number, n - 1
        if n == 0 then return found end
      end
      till = '(' .. Feed.text(number)
    end
    if #page < PAGE then break end
  end
  return found
end

-- Append: updates are added at the end, with rising numbers. One that was appended before is left out. Fails, and changes
-- nothing, if memory is full.
--
-- ARGV[6]: so many numbers back an update is known again. Then four for each: Telegram's id, kind, chat, body. Replies 1
-- (new) or 0 for each, and what was dropped.
function Steps.append()
  Prelude.fail_when_full()
  Feed.begin()
  local time, last, flags = Prelude.wall_time(), Feed.last(), {}
  -- After a quiet week Telegram begins to count elsewhere: an id may come again, for another update.
  if time - tonumber(call('HGET', KEY.meta, 'appended') or 0) > KEEP then call('DEL', KEY.seen) end
  local added = false
  for i = 7, #ARGV, 4 do
    local id = ARGV[i]
    local is_new = not call('ZSCORE', KEY.seen, id)
    if is_new then
      last, added = math.max(last + 1, tonumber(id)), true
      local number = Feed.text(last)
      call('HSET', KEY.bodies, number, ARGV[i + 3])
      call('ZADD', KEY.updates, number, string.format('%s %s %s %.3f', number, ARGV[i + 1], ARGV[i + 2], time))
      call('ZADD', KEY.seen, number, id)
    end
    flags[#flags + 1] = is_new and 1 or 0
  end
  call('HSET', KEY.meta, 'last', Feed.text(last), 'appended', Prelude.exact(time))
  call('ZREMRANGEBYSCORE', KEY.seen, '-inf', Feed.text(math.max(0, last - tonumber(ARGV[6]))))
  local dropped = Feed.drop_old(Reader.all())
  if added then call('PUBLISH', KEY.channel, BOT) end
  return { flags, dropped }
end

-- Read: the first updates that a reader has not confirmed. Works when memory is full, unless the reader is new.
--
-- ARGV[6]: its name; [7]: its poll; [8]: 1 if the poll begins; [9]: offset, or empty; [10]: "=" and the kinds, separated
-- by commas, or empty; [11]: how many updates at most; [12]: 1 if it is for a reader with a target; [13]: seconds after
-- which it is noted again that the reader was seen. Replies: state, numbers and bodies in turn, 1 if there is more to
-- examine, the reader, the last number, how many readers there are, 1 if its kinds have changed, and what was dropped.
function Steps.read()
  local name, begins, pushes, time = ARGV[6], ARGV[8] == '1', ARGV[12] == '1', Prelude.wall_time()
  local offset, last = tonumber(ARGV[9] ~= '' and ARGV[9] or 0), Feed.last()
  local is_there = call('HEXISTS', KEY.readers, name) == 1
  if not is_there and begins and not pushes then Prelude.fail_when_full() else Prelude.work_when_full() end
  Feed.begin()
  local readers, dropped = Reader.all(), { {}, {} }
  if begins then dropped = Feed.drop_old(readers) end
  local known = readers[name]
  local function only(state) return { state, {}, 0, '', '', 0, 0, dropped } end

  if not known then
    if pushes then return only('ended') end
    if not begins then return only('superseded') end
    if Reader.count() >= MOST_READERS then return only('crowded') end
  end
  local reader = known or Reader.begin(name, offset, last, time)
  if pushes ~= (reader.url ~= nil) then return only(pushes and 'ended' or 'pushed') end
  if not begins and reader.poll ~= ARGV[7] then return only('superseded') end

  local before = pack(reader)
  local kinds_before, position_before = reader.kinds, reader.position
  reader.poll = ARGV[7]
  if ARGV[10] ~= '' then reader.kinds = string.sub(ARGV[10], 2) end
  if offset < 0 then
    if not known then reader.position = 0 end
    reader.position = Reader.nth_last(reader, -offset)
  else
    reader.position = math.max(reader.position, math.min(offset, last + 1))
  end

  local found, limit, from, more = {}, tonumber(ARGV[11]), reader.position, 0
  for page_number = 1, PAGES do
    local page = Feed.page(from)
    for _, member in ipairs(page) do
      local number, kind = Feed.parts(member)
      from = number + 1
      if Reader.wants(reader, kind) then found[#found + 1] = Feed.text(number) end
      if #found == limit then break end
    end
    if #page < PAGE then from = math.max(from, last + 1) end
    if #found == limit or #page < PAGE then break end
    if page_number == PAGES then more = 1 end
  end
  reader.position = tonumber(found[1]) or from

  if not known or pack(reader) ~= before or time - reader.seen_at > tonumber(ARGV[13]) then
    reader.seen_at = time
    readers[name] = reader
    Reader.save(name, reader)
  end
  if not known or #dropped[2] > 0 or reader.position ~= position_before then Feed.delete_confirmed(readers) end
  local updates = {}
  for _, number in ipairs(found) do
    local body = call('HGET', KEY.bodies, number)
    if body then
      updates[#updates + 1] = number
      updates[#updates + 1] = body
    end
  end
  local has_new_kinds = not known or reader.kinds ~= kinds_before
  return { 'ok', updates, more, pack(reader), Feed.text(last), Reader.count(), has_new_kinds and 1 or 0, dropped }
end

-- Drop old: what is too old. Replies what was dropped. Works when memory is full.
function Steps.drop_old()
  Prelude.work_when_full()
  return Feed.drop_old(Reader.all())
end

-- Readers: names and readers in turn.
function Steps.readers() return call('HGETALL', KEY.readers) end

-- Pending: how many updates the reader has yet to confirm, from the number ARGV[7] on (0: from its position). ARGV[6] is
-- its name. Replies the count of some pages, and the number from which to go on, or 0.
function Steps.pending()
  local stored = call('HGET', KEY.readers, ARGV[6])
  if not stored then return { 0, '0' } end
  local reader, count = unpack_one(stored), 0
  local from = math.max(reader.position, tonumber(ARGV[7]))
  for _ = 1, PAGES do
    local page = Feed.page(from)
    for _, member in ipairs(page) do
      local number, kind = Feed.parts(member)
      from = number + 1
      if Reader.wants(reader, kind) then count = count + 1 end
    end
    if #page < PAGE then return { count, '0' } end
  end
  return { count, Feed.text(from) }
end

-- Set target: the updates of a reader are posted from now on, or not any more. Replies 0 if there are too many readers.
-- Fails, and changes nothing, if memory is full, unless the target is taken away.
--
-- ARGV[6]: its name; [7]: address, or empty; [8]: "=" and the secret, or empty; [9]: kinds as for a read; [10]: 1 if what
-- waits for it is dropped.
function Steps.set_target()
  local name, last = ARGV[6], Feed.last()
  if ARGV[7] == '' then Prelude.work_when_full() else Prelude.fail_when_full() end
  Feed.begin()
  local stored = call('HGET', KEY.readers, name)
  if not stored and Reader.count() >= MOST_READERS then return 0 end
  local reader = stored and unpack_one(stored) or Reader.begin(name, 0, last, Prelude.wall_time())
  reader.poll, reader.url, reader.secret, reader.error_at, reader.error = '', nil, nil, nil, nil
  if ARGV[7] ~= '' then reader.url = ARGV[7] end
  if ARGV[8] ~= '' then reader.secret = string.sub(ARGV[8], 2) end
  if ARGV[9] ~= '' then reader.kinds = string.sub(ARGV[9], 2) end
  if ARGV[10] == '1' then reader.position = last + 1 end
  Reader.save(name, reader)
  return 1
end

-- Note error: a post to the address ARGV[7] of the reader ARGV[6] has failed now: ARGV[8] says why.
function Steps.note_error()
  local stored = call('HGET', KEY.readers, ARGV[6])
  local reader = stored and unpack_one(stored)
  if reader and reader.url == ARGV[7] then
    reader.error_at, reader.error = Prelude.wall_time(), ARGV[8]
    Reader.save(ARGV[6], reader)
  end
  return 1
end

-- Bring: what a feed in another store holds is added, with the same numbers. What is here stays, so a call may be
-- repeated. Fails, and changes nothing, if memory is full.
--
-- ARGV[6]: the last number there; [7]: when it was appended to; [8]: how many readers follow, a name and a reader in turn;
-- then how many ids are known, an id and a number in turn; then five for each update: number, kind, chat, time of arrival,
-- body. Replies how many updates and readers are new.
function Steps.bring()
  Prelude.fail_when_full()
  call('SADD', KEY.bots, BOT)
  if tonumber(ARGV[6]) > Feed.last() then call('HSET', KEY.meta, 'last', ARGV[6], 'appended', ARGV[7]) end
  local updates, readers, at = 0, 0, 9
  for _ = 1, tonumber(ARGV[8]) do
    readers = readers + call('HSETNX', KEY.readers, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  local known = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, known do
    call('ZADD', KEY.seen, 'NX', ARGV[at + 1], ARGV[at])
    at = at + 2
  end
  for i = at, #ARGV, 5 do
    if call('HSETNX', KEY.bodies, ARGV[i], ARGV[i + 4]) == 1 then
      call('ZADD', KEY.updates, ARGV[i], table.concat(ARGV, ' ', i, i + 3))
      updates = updates + 1
    end
  end
  return { updates, readers }
end

-- Forget: the reader ARGV[6] is deleted. Replies 0 if there is none. Works when memory is full.
function Steps.forget()
  local gone = call('HDEL', KEY.readers, ARGV[6])
  Feed.delete_confirmed(Reader.all())
  return gone
end

-- Erase: the updates of the chat ARGV[6] are deleted, from the number ARGV[7] on. Replies how many of some pages, and the
-- number from which to go on, or 0.
function Steps.erase()
  local gone, from = {}, tonumber(ARGV[7])
  for _ = 1, PAGES do
    local page = Feed.page(from)
    for _, member in ipairs(page) do
      local number, _, chat = Feed.parts(member)
      from = number + 1
      if chat == ARGV[6] then gone[#gone + 1] = member end
    end
    if #page < PAGE then
      from = 0
      break
    end
  end
  Feed.delete(gone)
  return { #gone, Feed.text(from) }
end

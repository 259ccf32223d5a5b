-- The order of all messages, by number: lists are read in it. It is complete, also where a process of an older version has
-- put messages, which does not know of it.
--
-- Each step of this version notes the latest number. If another one was taken by the next step, an older version has taken
-- it, perhaps for a message that has no place yet.

-- Gives a message its place in the order of all, by its number: no two have the same. It keeps the place until it is
-- forgotten, even if its record is damaged.
function Message.order(message)
  if message.number == 0 then
    message.number = tonumber(call('ZSCORE', KEY.order, message.id) or Store.next_number())
  end
  Store.later('ZADD', KEY.order, message.number, message.id)
end

-- Notes that messages with numbers up to this one may have no place, as an older version has put them.
function Message.note_unordered()
  if Now.has_unordered then call('HSET', KEY.meta, 'unordered', Now.numbers) end
  Now.has_unordered = false
end

-- Gives a part of all messages their places. The scan goes on where the last one ended, whichever process made it. When one
-- is over that began at the number `order_scanned`, each message up to that has its place.
function Message.order_some()
  local known = call('HMGET', KEY.meta, 'order_scan', 'order_scan_from', 'unordered')
  local from = tonumber(known[1] and known[2] or Now.numbers)
  local cursor, fields = unpack(call('HSCAN', KEY.messages, known[1] or '0', 'COUNT', Bound.ADOPT))
  for i = 1, #fields, 2 do
    local message = Message.parse(fields[i], fields[i + 1])
    if message == nil then
      Message.at(fields[i])
    else
      if message.number == 0 then Now.messages[message.id] = message end -- it is given one, and written
      Message.order(message)
    end
  end
  if cursor ~= '0' then
    call('HSET', KEY.meta, 'order_scan', cursor, 'order_scan_from', from)
    return
  end
  call('HSET', KEY.meta, 'order_scanned', from)
  call('HDEL', KEY.meta, 'order_scan', 'order_scan_from')
  if tonumber(known[3] or 0) <= from then call('HDEL', KEY.meta, 'unordered') end
end

-- The processes that share the store: how each begins, and how the others know that it lives.

-- Open: fails if the data is of a version that this process does not know; notes that Redis restarted or was emptied
-- before anything is claimed.
--
-- A Redis that restarts may have forgotten the calls of its last seconds, and one that was emptied (FLUSHDB) all calls.
-- So each limit is unused from then on for the longest call and one of its windows, and leases stood still while Redis
-- was away. A restart forgets the scripts, which are loaded only after this one has run. A Redis that was emptied knows
-- them still: its data has an epoch, which every other step compares with the one that its process knows.
--
-- ARGV[3]: the run id of Redis; ARGV[4]: the version of the process; ARGV[5]: the epoch that it knows, empty if none;
-- ARGV[6]: the epoch of the data if it has none yet. Replies the epoch; `emptied` if it is not the known one, and `noted`
-- if another process has noted that before.
function Steps.open()
  local meta = call('HMGET', KEY.meta, 'schema', 'run_id', 'epoch', 'lost_epoch')
  local version = tonumber(meta[1] or 0)
  if version > tonumber(ARGV[4]) then return redis.error_reply('SCHEMA ' .. version) end
  local emptied = ARGV[5] ~= '' and ARGV[5] ~= meta[3]
  local noted = emptied and ARGV[5] == meta[4]
  local restarted = meta[2] and meta[2] ~= ARGV[3]
  if restarted or (emptied and not noted) then
    Now.restarted = Now.time
    Now.numbers = Now.numbers + 1e6 -- tokens that it gave and forgot must not be given again
    -- Numbers begin anew in an empty Redis. No process takes ten thousand in each second since the epoch.
    if emptied then Now.numbers = math.max(Now.numbers, Prelude.FIRST_NUMBER + math.floor(Now.time * 1e4)) end
    local away = Now.time - Now.last
    for _, id in ipairs(call('ZRANGE', KEY.leases, 0, -1)) do call('ZINCRBY', KEY.leases, away, id) end
    -- Another Redis has another order of hashes: a scan of messages that was not over begins anew.
    if Now.adopted ~= 'all' then Now.adopted = '0' end
    call('HDEL', KEY.meta, 'order_scan', 'order_scan_from')
  end
  local epoch = meta[3] or ARGV[6]
  call('HSET', KEY.meta, 'schema', ARGV[4], 'run_id', ARGV[3], 'restarted', Now.restarted, 'epoch', epoch)
  if emptied then call('HSET', KEY.meta, 'lost_epoch', ARGV[5]) end
  Now.unsettled = 0 -- counted anew: a process of an older version does not keep this number
  local counts = call('HGETALL', KEY.counts)
  for i = 1, #counts, 2 do
    if string.find(counts[i], CONSTANT.OPEN_COUNT_PREFIX, 1, true) == 1 then
      Now.unsettled = Now.unsettled + tonumber(counts[i + 1])
    end
  end
  return Step.finish({ epoch = epoch, emptied = emptied or nil, noted = noted or nil })
end

-- Heartbeat: this process is one of those that share the store. Replies how many there are: each takes its share of the
-- limits while Redis cannot be reached.
function Steps.heartbeat()
  call('ZADD', KEY.processes, Now.time, terms.me)
  for _, process in ipairs(call('ZRANGEBYSCORE', KEY.processes, '-inf', Now.time - CONSTANT.PROCESS_GONE_AFTER)) do
    call('ZREM', KEY.processes, process)
    call('HDEL', KEY.claimed, process)
  end
  return Step.finish({ count = call('ZCARD', KEY.processes) })
end

-- The processes that share the store: how each begins, and how the others know that it lives.

-- Open: fails if the data is of a version that this process does not know; notes a restart of Redis before anything is
-- claimed.
--
-- A Redis that restarts may have forgotten the calls of its last seconds. So each limit is unused for one of its windows
-- after a restart, and leases stood still while Redis was away. The other scripts are loaded only after this one has
-- run: a Redis that knows them has noted its restart. ARGV[3]: the run id of Redis; ARGV[4]: the version of the process;
-- ARGV[5]: 1 if the process has used another run of this Redis before, which may have kept nothing at all.
function Steps.open()
  local known = tonumber(call('HGET', KEY.meta, 'schema') or 0)
  if known > tonumber(ARGV[4]) then return redis.error_reply('SCHEMA ' .. known) end
  local before = call('HGET', KEY.meta, 'run_id')
  if before ~= ARGV[3] and (before or ARGV[5] == '1') then
    Now.restarted = Now.time
    Now.numbers = Now.numbers + 1e6 -- tokens that it gave and forgot must not be given again
    local away = Now.time - Now.last
    for _, id in ipairs(call('ZRANGE', KEY.leases, 0, -1)) do call('ZINCRBY', KEY.leases, away, id) end
  end
  call('HSET', KEY.meta, 'schema', ARGV[4], 'run_id', ARGV[3], 'restarted', Now.restarted)
  return Step.finish()
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

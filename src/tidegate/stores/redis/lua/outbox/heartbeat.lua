-- Heartbeat: this process is one of those that share the store. Replies how many there are: each takes its share of the
-- limits while Redis cannot be reached.

call('ZADD', KEY.processes, Now.time, terms.me)
for _, process in ipairs(call('ZRANGEBYSCORE', KEY.processes, '-inf', Now.time - CONSTANT.PROCESS_GONE_AFTER)) do
  call('ZREM', KEY.processes, process)
  call('HDEL', KEY.claimed, process)
end
return Step.finish({ count = call('ZCARD', KEY.processes) })

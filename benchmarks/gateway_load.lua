-- The load of gateway.py, for wrk: sendMessage to 2,000 chats in turn. Its argument is the path of the call.
local requests, at = {}, 0

init = function(args)
  local head = {["Content-Type"] = "application/json"}
  for chat = 1001, 3000 do
    local body = string.format('{"chat_id":%d,"text":"Your order is on its way"}', chat)
    requests[#requests + 1] = wrk.format("POST", args[1], head, body)
  end
end

request = function()
  at = at % #requests + 1
  return requests[at]
end

done = function(summary, latency)
  local lost = summary.errors
  print(string.format(
    'JSON {"calls":%d,"seconds":%f,"failed":%d,"p50_ms":%f,"p99_ms":%f}',
    summary.requests, summary.duration / 1e6,
    lost.connect + lost.read + lost.write + lost.status + lost.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3
  ))
end

-- Leader leases: one holder at a time (`shared/lease.lua`).

-- Take: ARGV[2] holds the lease for ARGV[3] seconds from now, whether it held it before or not. Replies 0, and gives
-- nothing, while another holds it. Works when memory is full.
function Steps.take()
  Prelude.work_when_full()
  local time, seconds = Prelude.wall_time(), tonumber(ARGV[3])
  local till, holder = Lease.read(KEY.lease)
  local taken = not Lease.is_held_by_another(KEY.lease, ARGV[2], time)
  if taken then holder = ARGV[2] end
  -- After the clock was set back, another's lease would last too long: it is written anew, as if it were taken now.
  if taken or till > time + seconds then
    call('SET', KEY.lease, string.format('%.6f %s', time + seconds, holder), 'PX', math.ceil(2000 * seconds))
  end
  return taken and 1 or 0
end

-- Give back: if ARGV[2] holds the lease, it ends at once. The lease of another goes on.
function Steps.give_back()
  local _, holder = Lease.read(KEY.lease)
  if holder == ARGV[2] then call('DEL', KEY.lease) end
  return 1
end

-- Gives up what an owner has, the lock or a place in the queue, and wakes the next if the lock is free now. Touches
-- nothing of anybody else's. A waiter leaves by it too: a try whose answer was lost may have been granted.
--
-- ARGV   1 owner id   2 what channels of waiters begin with
--        3 µs since its run started, if it succeeded   4 ms for which that is to be remembered
-- gives  'left'

local value = lock_value()
if value == ARGV[1] then
  if ARGV[3] then
    redis.call('SET', KEYS[6], LAYOUT .. ':' .. whole(server_time() - ARGV[3]), 'PX', ARGV[4])
  end
  redis.call('DEL', KEYS[1], KEYS[3])
  value = false
end
drop(ARGV[1])
if not value then
  wake_first(server_time(), ARGV[2])
end
return 'left'

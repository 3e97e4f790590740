-- Gives up what an owner has, the lock or a place in the queue, and wakes the next if the lock is free now. Touches
-- nothing of anybody else's. A waiter leaves by it too: a try whose answer was lost may have been granted.
--
-- ARGV   1 owner id   2 what channels of waiters begin with
--        3 ms for which the lock is kept, nobody's, 0: it is free
--        4... marks to write: slot, µs since it began, ms for which it is remembered, and so on
-- gives  'left'; {'unmarked', why} if marks could not be written: the lock is given back all the same

local owner, keep, problem = ARGV[1], tonumber(ARGV[3]), nil
local value = lock_value()
if value == owner then
  if keep > 0 then
    value = KEPT .. owner
    redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
    redis.call('PEXPIRE', KEYS[3], ARGV[3])
  else
    redis.call('DEL', KEYS[1], KEYS[3])
    value = false
  end
  if ARGV[4] then
    problem = write_marks(ARGV, 4, server_time()) -- a server that is out of memory refuses it
  end
end
drop(owner)
if not value then
  wake_first(server_time(), ARGV[2])
end
return problem and { 'unmarked', problem } or 'left'

-- Writes a mark while an owner holds the lock.
--
-- ARGV   1 owner id   2 slot   3 µs since it began   4 ms for which it is remembered
-- gives  'marked', 'gone' if the lock is free, 'taken' if it is somebody else's, {'unmarked', why}

local value = lock_value()
if value ~= ARGV[1] then
  local most = several(value)
  if not most or settle(server_time(), most) == 0 or select(3, place_of(ARGV[1])) ~= 'held' then
    return value and 'taken' or 'gone'
  end
end
local problem = write_marks(ARGV, 2, server_time())
return problem and { 'unmarked', problem } or 'marked'

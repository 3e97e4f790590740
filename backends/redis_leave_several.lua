-- Gives up what an owner has of a lock that several may hold at once, as redis_leave.lua.
--
-- ARGV, gives   as there

local owner, keep, problem = ARGV[1], tonumber(ARGV[3]), nil
local now = server_time()
local value = lock_value()
local most = several(value)
if most and settle(now, most) > 0 then
  local index, token, state, details = place_of(owner)
  if index and state == 'held' then
    if keep > 0 then
      put(owner, now + keep * 1000, index, token, 'kept', details)
    else
      take_out(owner)
    end
    if ARGV[4] then
      problem = write_marks(ARGV, 4, now) -- a server that is out of memory refuses it
    end
  end
end
drop(owner)
if most then
  wake_next(now, ARGV[2], most)
elseif not value then
  wake_first(now, ARGV[2])
end
return problem and { 'unmarked', problem } or 'left'

-- Takes the lease away from a holder, if it is still this one.
--
-- ARGV   1 the holder's token, '' if it has none   2 its owner id, if it has no token
--        3 who does it, as a JSON string; the first who did it is remembered
--        4 '1': the lock is free now, '0': when its holder gives it back or its TTL is over
--        5 what channels of waiters begin with
-- gives  'revoked', 'another' if the holder is somebody else or nobody
--        {'layout', record}  stored by a version that this program does not know

local token, record = last_token()
if not token then
  return { 'layout', record }
end
local function meant(owner, its_token)
  return ARGV[1] ~= '' and tonumber(ARGV[1]) == its_token or ARGV[1] == '' and ARGV[2] == owner
end
local function revoked(details)
  return is_revoked(details) and details or string.sub(details, 1, -2) .. ',"revoked":' .. ARGV[3] .. '}'
end

local value = lock_value()
local most = several(value)
if most then
  local now = server_time()
  settle(now, most)
  local holders = redis.call('ZRANGE', PLACES, 0, -1, 'WITHSCORES')
  for at = 1, #holders, 2 do
    local owner = holders[at]
    local index, its_token, state, details = place_of(owner)
    if meant(owner, its_token) then
      if ARGV[4] == '1' or state == 'kept' then
        take_out(owner)
        wake_next(now, ARGV[5], most)
      else
        put(owner, tonumber(holders[at + 1]), index, its_token, state, revoked(details))
      end
      return 'revoked'
    end
  end
  return 'another'
end

local owner, details, kept = holder_of(value)
if not owner or not meant(owner, token) then
  return 'another' -- a foreign holder has no token
end
if ARGV[4] == '1' or kept then
  redis.call('DEL', KEYS[1], KEYS[3])
  wake_first(server_time(), ARGV[5])
else
  redis.call('SET', KEYS[3], revoked(details), 'PX', math.max(redis.call('PTTL', KEYS[1]), 1))
end
return 'revoked'

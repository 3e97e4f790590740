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
local value = lock_value()
local details = value and redis.call('GET', KEYS[3])
local owner = details and string.match(details, '"owner":"([^"]*)"')
local kept = owner and value == KEPT .. owner
if not owner or not (kept or value == owner) then
  return 'another' -- nobody's, or a foreign holder's: that has no token
end
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= token or ARGV[1] == '' and ARGV[2] ~= owner then
  return 'another'
end
if ARGV[4] == '1' or kept then
  redis.call('DEL', KEYS[1], KEYS[3])
  wake_first(server_time(), ARGV[5])
elseif not is_revoked(details) then
  details = string.sub(details, 1, -2) .. ',"revoked":' .. ARGV[3] .. '}'
  redis.call('SET', KEYS[3], details, 'PX', math.max(redis.call('PTTL', KEYS[1]), 1))
end
return 'revoked'

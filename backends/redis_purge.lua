-- Forgets a lock that nobody needs. Later tokens are greater all the same: they are at least the server's time, and a
-- token that is ahead of that stays.
--
-- ARGV   1 µs since the last grant after which it may go   2 what channels of waiters begin with
-- gives  'purged', 'kept'
--        {'layout', record}  stored by a version that this program does not know

local now = server_time()
local token, record = last_token()
if not token then
  return { 'layout', record }
end
local value = lock_value()
local most = several(value)
if most and settle(now, most) == 0 then
  value = false
end
-- The time of the last grant, unless the clock was set back since.
if value or token == 0 or token >= now or now - token < tonumber(ARGV[1]) then
  return 'kept'
end
for _, owner in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  if seen_for(redis.call('HGET', KEYS[5], owner), now) > 0 and redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. owner)[2] > 0 then
    return 'kept'
  end
end
if redis.call('TYPE', KEYS[6]).ok == 'hash' then
  for _, slot in ipairs(redis.call('HKEYS', KEYS[6])) do
    if mark_in(slot, now) then
      return 'kept'
    end
  end
end
redis.call('DEL', unpack(KEYS))
return 'purged'

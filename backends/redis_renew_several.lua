-- Starts the TTL of one of several leases anew, as redis_renew.lua; of the keys it names the lock, the token, the places
-- and the holders, all of which a lock that several hold has.
--
-- ARGV   1 owner id   2 ttl in ms   3 index
-- gives  as there; 'taken' also if the owner has another index: it was given that by a try of which it knows nothing

local owner = ARGV[1]
local value = lock_value()
local most = several(value)
if not most then
  return value and 'taken' or 'gone'
end
local now = server_time()
local till = tonumber(redis.call('ZSCORE', PLACES, owner) or 0)
if till <= now then
  return 'gone'
end
local index, token, state, details = place_of(owner)
if index ~= tonumber(ARGV[3]) or state ~= 'held' then
  return 'taken'
elseif is_revoked(details) then
  return { 'revoked', details }
end
put(owner, now + ARGV[2] * 1000, index, token, state, details)
settle(now, most)
return 'renewed'

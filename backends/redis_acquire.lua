-- One try to get a lock; in vain, it takes a place in the queue or shows that we still wait in it.
--
-- ARGV   1 owner id   2 ttl in ms   3 details to store as the holder   4 details to store as a waiter
--        5 our place from an earlier try, '' if there was none: it is ours again if we were dropped for dead
--        6 server time in µs after which nobody waits for the answer any more, 0 if unknown
--        7 what channels of waiters begin with; an owner id follows
-- gives  {'granted', server time, token}
--        {'waiting', server time, place, ms after which to look again, -1 for no particular time}
--        {'others', server time, most}  it is held by such as say that so many may hold it at once
--        {'late', server time}      nothing was done: a request that a stalled server or network delivers after its
--                                   sender has gone would lock everybody out for a TTL
--        {'layout', server time, record}  stored by a version that this program does not know
--
-- A lock that is already ours was granted by a try whose answer was lost: the same token, a new TTL.

local owner, ttl, place = ARGV[1], ARGV[2], tonumber(ARGV[5])
local now = server_time()
local refusal, token = refused(now, tonumber(ARGV[6]))
if refusal then
  return refusal
end
local value = lock_value()
local most = most_in(value)
if most then
  return { 'others', whole(now), whole(most) }
end
local before, before_for
if not value then
  before, before_for = wake_first(now, ARGV[7], owner, place)
end

if value == owner or not (value or before) then
  local details = ARGV[3]
  if value == owner then
    local stored = redis.call('GET', KEYS[3])
    details = is_revoked(stored) and stored or details -- the operator was faster than our second try
  end
  if value ~= owner or token == 0 then
    token = math.max(token + 1, now)
    redis.call('SET', KEYS[2], LAYOUT .. ':' .. whole(token))
  end
  drop(owner)
  redis.call('SET', KEYS[3], details, 'PX', ttl)
  redis.call('SET', KEYS[1], owner, 'PX', ttl)
  return { 'granted', whole(now), whole(token) }
end

place = wait_in_line(now, owner, place, ARGV[4])
local look_again = before_for and before_for / 1000
if not look_again then
  look_again = redis.call('PTTL', KEYS[1])
  if look_again >= 0 then
    look_again = after_lease(look_again, owner)
  end
end
return { 'waiting', whole(now), whole(place), whole(look_again) }

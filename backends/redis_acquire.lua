-- One try to get a lock; in vain, it takes a place in the queue or shows that we still wait in it.
--
-- ARGV   1 owner id   2 ttl in ms   3 details to store as the holder   4 details to store as a waiter
--        5 our place from an earlier try, '' if there was none: it is ours again if we were dropped for dead
--        6 server time in µs after which nobody waits for the answer any more, 0 if unknown
--        7 what channels of waiters begin with; an owner id follows
-- gives  {'granted', server time, token}
--        {'waiting', server time, place, ms after which to look again, -1 for no particular time}
--        {'late', server time}      nothing was done: a request that a stalled server or network delivers after its
--                                   sender has gone would lock everybody out for a TTL
--        {'layout', server time, record}  stored by a version that this program does not know
--
-- A lock that is already ours was granted by a try whose answer was lost: the same token, a new TTL.

local owner, ttl, place, not_after = ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local now = server_time()
if not_after > 0 and now > not_after then
  return { 'late', whole(now) }
end
local token, record = last_token()
if not token then
  return { 'layout', whole(now), record }
end
local value = lock_value()
local before, before_for
if not value then
  before, before_for = wake_first(now, ARGV[7], owner, place)
end

if value == owner or not (value or before) then
  if value ~= owner or token == 0 then
    token = math.max(token + 1, now)
    redis.call('SET', KEYS[2], LAYOUT .. ':' .. whole(token))
  end
  drop(owner)
  redis.call('SET', KEYS[3], ARGV[3], 'PX', ttl)
  redis.call('SET', KEYS[1], owner, 'PX', ttl)
  return { 'granted', whole(now), whole(token) }
end

if not place then
  -- Dead waiters are dropped when they stand in somebody's way. Behind a lock that is held for weeks they do not, and
  -- would pile up.
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    if seen_for(redis.call('HGET', KEYS[5], waiter), now) <= 0 then
      drop(waiter)
    end
  end
  local last = redis.call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')
  place = math.max(now, (tonumber(last[2]) or 0) + 1)
end
redis.call('ZADD', KEYS[4], whole(place), owner)
redis.call('HSET', KEYS[5], owner, whole(now) .. ' ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[4], QUEUE_KEPT)
redis.call('PEXPIRE', KEYS[5], QUEUE_KEPT)
local look_again = before_for and before_for / 1000
if not look_again then
  look_again = redis.call('PTTL', KEYS[1])
  if look_again >= 0 then
    -- The first in line comes when the lease ends; each behind it a little later, in case that it is dead.
    look_again = look_again + 1 + 30 * redis.call('ZRANK', KEYS[4], owner)
  end
end
return { 'waiting', whole(now), whole(place), whole(look_again) }

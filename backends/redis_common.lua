-- What the scripts share; it is put in front of each of them.
--
-- KEYS   1 lock      string: owner id of the holder, with PX; "kept:OWNER" of one whose run is over; "holders:MOST" of
--                    several at once, with the PX of the longest of their leases. Any other client's value or type: a
--                    foreign holder
--        2 token     string "LAYOUT:TOKEN": the last token granted. The one record without an expiry
--        3 holder    string: details of the holder, with the same PX; JSON, the last member of which is "revoked", by whom,
--                    once an operator has taken the lease away. Not in a key of its own: see what renew names
--        4 queue     sorted set: owner ids of the waiters by place
--        5 waiters   hash: owner id -> "SEEN DETAILS", SEEN being the server's µs at its last poll
--        6 marks     hash: slot -> "LAYOUT:START:UNTIL", server's µs at which what is marked began and until which it is
--                    remembered. Expires with the last of them
--        Only where several holders are looked at:
--        7 places    sorted set: owner ids of several holders by the server's µs at which their leases end
--        8 holders   hash: owner id -> "INDEX TOKEN STATE DETAILS", STATE being "held" or "kept". Both have the PX of the
--                    lock, and count only while that says that several hold it
--
-- A waiter lives while somebody is subscribed to its channel (gone at once with a process that is killed) and it has
-- polled within STALE (which ends for one that is frozen, or on a host that vanished).
-- Numbers are formatted by hand: Lua's own conversion would make 1.7960597577398e+15 of a time.

local LAYOUT = '1'
local KEPT = 'kept:' -- before the owner id: its run is over, and the lock outlives it
local STALE = 4000000 -- µs: with two polls missed, and well within the 5 s that are promised
local QUEUE_KEPT = '10000' -- ms; each poll of a waiter renews it, so that it outlives them all

local function whole(number)
  return string.format('%.0f', number)
end

local PLACES, HOLDERS = KEYS[7] or KEYS[3], KEYS[8] or KEYS[4] -- a renewal names no others, see redis_renew_several.lua

local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The last token, 0 if there is no record; nil and the record itself if this program does not know its layout.
local function last_token()
  local record = redis.pcall('GET', KEYS[2])
  if not record then
    return 0
  elseif type(record) ~= 'string' then
    if string.sub(record.err, 1, 9) == 'WRONGTYPE' then
      return nil, 'not a string'
    end
    return redis.call('GET', KEYS[2]) -- raises what it was
  end
  local layout, token = string.match(record, '^(%d+):(%d+)$')
  if layout ~= LAYOUT then
    return nil, record
  end
  return tonumber(token)
end

-- The holder's owner id, '' for a foreign one whose key is no string (a Redisson lock is a hash), false if free.
local function lock_value()
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
      return ''
    end
    return redis.call('GET', KEYS[1]) -- raises what it was
  end
  return value
end

-- How many may hold the lock at once, if its value says that several do.
local function most_in(value)
  return value and tonumber(string.match(value, '^holders:(%d+)$'))
end

-- Owner id of the distlock that holds or kept the lock alone, its details, and whether it is kept; nil if a foreign holder
-- or nobody does.
local function holder_of(value)
  local details = value and redis.call('GET', KEYS[3])
  local owner = details and string.match(details, '"owner":"([^"]*)"')
  local kept = owner and value == KEPT .. owner
  if owner and (kept or value == owner) then
    return owner, details, kept
  end
end

-- µs for which a waiter will yet count as seen, negative if it does not. A stamp of the future is none: the clock was
-- set back since.
local function seen_for(details, now)
  local seen = details and tonumber(string.match(details, '^(%d+) '))
  if not seen or seen > now + STALE then
    return -1
  end
  return seen + STALE - now
end

-- Server's µs at which what is marked in a slot began, and until which that counts; nil if nobody knows.
local function mark_in(slot, now)
  local record = redis.pcall('HGET', KEYS[6], slot)
  local layout, start, till = string.match(type(record) == 'string' and record or '', '^(%d+):(%d+):(%d+)$')
  if layout == LAYOUT and tonumber(till) > now then
    return tonumber(start), tonumber(till)
  end
end

-- Writes marks, given as slot, µs since it began, ms for which it is remembered, and so on; drops what is forgotten.
-- Gives why not, or nil.
local function write_marks(words, first, now)
  if redis.call('TYPE', KEYS[6]).ok ~= 'hash' then
    redis.call('DEL', KEYS[6]) -- somebody else's doing, or nothing
  end
  for at = first, #words, 3 do
    local slot, start, till = words[at], now - words[at + 1], now + words[at + 2] * 1000
    local done = redis.pcall('HSET', KEYS[6], slot, LAYOUT .. ':' .. whole(start) .. ':' .. whole(till))
    if type(done) == 'table' and done.err then
      return done.err
    end
  end
  local last = 0
  for _, slot in ipairs(redis.call('HKEYS', KEYS[6])) do
    local _, till = mark_in(slot, now)
    if not till then
      redis.call('HDEL', KEYS[6], slot)
    elseif till > last then
      last = till
    end
  end
  if last > 0 then
    redis.call('PEXPIREAT', KEYS[6], whole(math.ceil(last / 1000)))
  end
end

-- Whether details of a holder say that an operator has taken its lease away. A quote in a text has a backslash.
local function is_revoked(details)
  return details and string.find(details, ',"revoked":".*"}$')
end

local function drop(waiter)
  redis.call('ZREM', KEYS[4], waiter)
  redis.call('HDEL', KEYS[5], waiter)
end

-- Why a try is not served at all, as the answer to it; nil and the last token if it is.
local function refused(now, not_after)
  if not_after > 0 and now > not_after then
    return { 'late', whole(now) }
  end
  local token, record = last_token()
  if not token then
    return { 'layout', whole(now), record }
  end
  return nil, token
end

-- Wakes the first waiter that lives, unless it is `me` or behind `place`, and drops the dead before it.
-- Gives its owner id and the µs until it counts as dead; nothing if nobody is before us.
local function wake_first(now, channel, me, place)
  while true do
    local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
    if not first[1] or first[1] == me or (place and tonumber(first[2]) > place) then
      return nil
    end
    local left = seen_for(redis.call('HGET', KEYS[5], first[1]), now)
    if left > 0 and redis.call('PUBLISH', channel .. first[1], '') > 0 then
      return first[1], left
    end
    drop(first[1])
  end
end

-- Takes a place in the queue, the one from an earlier try if there is one, or shows that we still wait in it. Gives it.
local function wait_in_line(now, owner, place, details)
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
  redis.call('HSET', KEYS[5], owner, whole(now) .. ' ' .. details)
  redis.call('PEXPIRE', KEYS[4], QUEUE_KEPT)
  redis.call('PEXPIRE', KEYS[5], QUEUE_KEPT)
  return place
end

-- ms after which a waiter looks again, of a lease that ends in so many. The first in line comes when it ends; each behind
-- it a little later, in case that it is dead.
local function after_lease(left, owner)
  return left + 1 + 30 * redis.call('ZRANK', KEYS[4], owner)
end

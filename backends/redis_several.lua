-- What the scripts share that know of several holders at once; it stands behind redis_common.lua.

-- How many may hold the lock at once, if several do; nil if one does, or a foreign holder, whatever its value.
local function several(value)
  local most = most_in(value)
  return most and redis.call('TYPE', PLACES).ok == 'zset' and most or nil
end

-- Of an owner who holds or has kept one of the places: index, token, state, details.
local function place_of(owner)
  local record = redis.call('HGET', HOLDERS, owner)
  if record then
    local index, token, state, details = string.match(record, '^(%d+) (%d+) (%a+) (.*)$')
    return tonumber(index), tonumber(token), state, details
  end
end

local function put(owner, till, index, token, state, details)
  redis.call('ZADD', PLACES, whole(till), owner)
  redis.call('HSET', HOLDERS, owner, whole(index) .. ' ' .. whole(token) .. ' ' .. state .. ' ' .. details)
end

local function take_out(owner)
  redis.call('ZREM', PLACES, owner)
  redis.call('HDEL', HOLDERS, owner)
end

-- Drops the places that have run out, and the lock with the last of them; if some are left, the lock and what lies
-- beside it last as long as the longest. Gives how many are left.
local function settle(now, most)
  while true do
    local first = redis.call('ZRANGE', PLACES, 0, 0, 'WITHSCORES')
    if not first[1] then
      redis.call('DEL', KEYS[1], PLACES, HOLDERS)
      return 0
    elseif tonumber(first[2]) > now then
      break
    end
    take_out(first[1])
  end
  local last = redis.call('ZRANGE', PLACES, -1, -1, 'WITHSCORES')
  local left = whole(math.ceil((last[2] - now) / 1000))
  redis.call('SET', KEYS[1], 'holders:' .. whole(most), 'PX', left)
  redis.call('PEXPIRE', PLACES, left)
  redis.call('PEXPIRE', HOLDERS, left)
  return redis.call('ZCARD', PLACES)
end

-- The smallest index that nobody has, or the wanted one; nil if somebody has that.
local function free_index(wanted)
  local had = {}
  for _, owner in ipairs(redis.call('ZRANGE', PLACES, 0, -1)) do
    local index = place_of(owner)
    if not index then
      return nil -- somebody else's doing has lost which it is
    end
    had[index] = true
  end
  local index = wanted or 0
  while had[index] do
    if wanted then
      return nil
    end
    index = index + 1
  end
  return index
end

-- How many may hold the lock at once, as a waiter says.
local function wanted_by(details)
  return tonumber(string.match(details, ',"holders":(%d+)}$')) or 1
end

-- As wake_first, for as many waiters as there are `free` places. Gives how many of these are before us, and the µs until
-- one of them counts as dead. Somebody who wants another number of holders is not before us while the lock is `held`,
-- but has to come to be told so; when it is not, all behind it wait until it is served.
local function wake_several(now, channel, me, place, most, free, held)
  local at, found, least = 0, 0, nil
  while found < free do
    local one = redis.call('ZRANGE', KEYS[4], at, at, 'WITHSCORES')
    if not one[1] or one[1] == me or (place and tonumber(one[2]) > place) then
      return found, least
    end
    local details = redis.call('HGET', KEYS[5], one[1])
    local left = seen_for(details, now)
    if left > 0 and redis.call('PUBLISH', channel .. one[1], '') > 0 then
      at = at + 1
      if wanted_by(details) == most then
        found, least = found + 1, math.min(left, least or left)
      elseif not held then
        return free, left
      end
    else
      drop(one[1])
    end
  end
  return found, least
end

-- Wakes who has a turn now, after a place became free or a waiter left.
local function wake_next(now, channel, most)
  local left = settle(now, most)
  if left == 0 then
    wake_first(now, channel)
  else
    wake_several(now, channel, '', nil, most, most - left, true)
  end
end

-- One try to get one of the places of a lock that several may hold at once, as redis_acquire.lua.
--
-- ARGV   1 to 7 as there   8 how many may hold it at once
--        9 the index that we want, '' for the smallest that nobody has. Another one that we have is given up for it
-- gives  {'granted', server time, token, index}
--        'waiting', 'others' (of one: 1), 'late', 'layout' as there

local owner, place = ARGV[1], tonumber(ARGV[5])
local most, wanted = tonumber(ARGV[8]), tonumber(ARGV[9])
local now = server_time()
local refusal, token = refused(now, tonumber(ARGV[6]))
if refusal then
  return refusal
end
local till = now + ARGV[2] * 1000

local value = lock_value()
local theirs, had = several(value), 0
if theirs then
  had = settle(now, theirs)
  value, theirs = had > 0, had > 0 and theirs -- an end within this very millisecond
elseif value then
  theirs = holder_of(value) and 1
end
if theirs and theirs ~= most then
  return { 'others', whole(now), whole(theirs) }
end

local index, before, before_for, free
if theirs then
  local mine, its_token, state, details = place_of(owner)
  if mine and state == 'held' then
    if not wanted or wanted == mine then
      put(owner, till, mine, its_token, state, is_revoked(details) and details or ARGV[3])
      settle(now, most)
      drop(owner)
      return { 'granted', whole(now), whole(its_token), whole(mine) }
    end
    take_out(owner)
    had = settle(now, most)
    value = had > 0
  end
end
free = value and not theirs and 0 or most - had
before, before_for = wake_several(now, ARGV[7], owner, place, most, free, had > 0)
if before < free then
  if had == 0 then
    redis.call('DEL', PLACES, HOLDERS) -- of a lock that somebody has deleted
  end
  index = free_index(wanted)
end

if index then
  token = math.max(token + 1, now)
  redis.call('SET', KEYS[2], LAYOUT .. ':' .. whole(token))
  put(owner, till, index, token, 'held', ARGV[3])
  settle(now, most)
  drop(owner)
  wake_several(now, ARGV[7], '', nil, most, free - 1, true)
  return { 'granted', whole(now), whole(token), whole(index) }
end

place = wait_in_line(now, owner, place, ARGV[4])
local look_again = before_for and before_for / 1000 or -1
if free == 0 then
  if had > 0 then
    local first = redis.call('ZRANGE', PLACES, 0, 0, 'WITHSCORES')
    look_again = math.ceil((first[2] - now) / 1000)
  else
    look_again = redis.call('PTTL', KEYS[1])
  end
  look_again = look_again >= 0 and after_lease(look_again, owner) or -1
end
return { 'waiting', whole(now), whole(place), whole(look_again) }

-- All of one lock, for people. Writes nothing, so that a replica can answer too.
--
-- ARGV   1 what channels of waiters begin with
-- gives  {'free' or 'held', the lock's value, ms left (-1: no expiry), last token (0: none), details of the holder,
--         server's µs at which the last run that succeeded started ('': unknown), server's µs now,
--         details of the living waiters in order ...}
--        {'several', most, number of holders, then as above; before the waiters, for each holder, µs left, and what is
--         stored of it ...}
--        {'layout', record}  stored by a version that this program does not know

local token, record = last_token()
if not token then
  return { 'layout', record }
end
local value = lock_value()
local now = server_time()
local left = redis.call('PTTL', KEYS[1])
local success = mark_in('success', now)
local answer = { value and 'held' or 'free', value or '', left, whole(token), '', success and whole(success) or '' }
answer[7] = whole(now)
local most = several(value)
if most then
  local holders = redis.call('ZRANGE', PLACES, 0, -1, 'WITHSCORES')
  for at = 1, #holders, 2 do
    local holder_left = holders[at + 1] - now
    if holder_left > 0 then
      answer[#answer + 1] = whole(holder_left)
      answer[#answer + 1] = redis.call('HGET', HOLDERS, holders[at]) or ''
    end
  end
  answer[1], answer[2], answer[3] = 'several', whole(most), (#answer - 7) / 2
elseif value then
  answer[5] = redis.call('GET', KEYS[3]) or ''
end
for _, owner in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local details = redis.call('HGET', KEYS[5], owner)
  if seen_for(details, now) > 0 and redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. owner)[2] > 0 then
    answer[#answer + 1] = string.match(details, ' (.*)$')
  end
end
return answer

-- The mark of one slot. Writes nothing.
--
-- ARGV   1 slot
-- gives  {server's µs at which it began, server's µs now}, or {} if there is none

local now = server_time()
local start = mark_in(ARGV[1], now)
return start and { whole(start), whole(now) } or {}

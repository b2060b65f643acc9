-- Whether the instant of the record has come (P14), see admission.lua.
--
-- now_us, now_ms  its clock, for tokens (P12) and for the watch over it (P17)
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
if left == 0 and ARGV[2] ~= '' and now_us < ARGV[2] * 1000 then
  left = math.ceil(ARGV[2] - now_us / 1000)
end

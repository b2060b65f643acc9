-- Whether the instant of the record has come (P14), see admission.lua.
--
-- now_us  its clock, for the watch over it (P17); 0 if admission is off
local now_us = 0
if ARGV[1] ~= '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  if left == 0 and ARGV[2] ~= '' and now_us < ARGV[2] * 1000 then
    left = math.ceil(ARGV[2] - now_us / 1000)
  end
end

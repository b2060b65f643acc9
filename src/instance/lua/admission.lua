-- Whether this instance may vote (P14). It may if its record is the one that the client knows for
-- this process and its instant has come. Every script that votes begins with this.
--
-- ARGV  1 the record, empty if admission is off; 2 the instant of its record, in ms
--
-- left    0 if it may vote, else how many ms it must still sit out, -1 if that is not known
-- now_us  its clock, for the watch over it (P17); 0 if admission is off
local left, now_us = 0, 0
if ARGV[1] ~= '' then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  if redis.pcall('GET', 'redquorum:admission') ~= ARGV[1] then
    left = -1
  elseif now_us < ARGV[2] * 1000 then
    left = math.ceil(ARGV[2] - now_us / 1000)
  end
end

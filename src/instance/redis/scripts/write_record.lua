-- Writes the admission record, if the one that was found is still there (P15).
--
-- KEYS  1 the record's key
-- ARGV  1 what was found, empty if nothing; 2 identity; 3 max_ttl in ms; 4 origin;
--       5 from when on it may vote in ms, if it follows the one that was found; empty: a quarantine from now;
--       6 its order, or the least of it where a quarantine begins; 7 the quarantine in ms
--
-- {the record that is there now, or nil; its clock in us}
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'table' then
  found = 'no string'
end
if (found or '') ~= ARGV[1] then
  return {found, now_us}
end

local vote_from, order = tonumber(ARGV[5]), tonumber(ARGV[6])
if not vote_from then
  vote_from = now_ms + ARGV[7]
  -- A writer that knows of no record writes no older one than were there, unless the clock was set back since.
  order = math.max(now_ms, order)
end
local record = string.format('%s %.0f %s %s %.0f', ARGV[2], vote_from, ARGV[3], ARGV[4], order)
if ARGV[7] ~= ARGV[3] then
  record = record .. ' ' .. ARGV[7]
end
redis.call('SET', KEYS[1], record)
return {record, now_us}

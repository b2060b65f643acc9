-- Writes the admission record, if the one that was found is still there (P15).
--
-- KEYS  1 the record's key
-- ARGV  1 what was found, empty if nothing; 2 identity; 3 max_ttl in ms; 4 origin;
--       5 from when on it may vote in ms, or empty: a quarantine from now;
--       6 how much of that must still be left for it to stand, empty if it does in any case;
--       7 the least order of the record; 8 the quarantine in ms; 9 the terms of the cluster, or empty
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

local vote_from = tonumber(ARGV[5])
if ARGV[6] ~= '' and ARGV[4] == 'opened' then
  vote_from = now_ms
elseif not vote_from or ARGV[6] ~= '' and vote_from <= now_ms + ARGV[6] then
  vote_from = now_ms + ARGV[8]
end
-- A writer that knows of no record writes no older one than were there: the clock went on since then.
local order = math.max(now_ms, tonumber(ARGV[7]))
local record = string.format('%s %.0f %s %s %.0f', ARGV[2], vote_from, ARGV[3], ARGV[4], order)
if ARGV[8] ~= ARGV[3] then
  record = record .. ' ' .. ARGV[8]
end
if ARGV[9] ~= '' then
  record = record .. ' ' .. ARGV[9]
end
redis.call('SET', KEYS[1], record)
return {record, now_us}

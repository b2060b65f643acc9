-- Writes the admission record, if the one that was found is still there (P15, P29).
--
-- KEYS  1 the record's key
-- ARGV  1 what was found, empty if nothing; 2 identity; 3 the longest ttl that it allows, in ms; 4 origin;
--       5 the least instant from which it may vote, in ms; 6 for how long it waits from now, in ms, empty if it only follows
--       the one that was found; 7 its order, or the least of it where it waits from now; 8, 9 the least and the most of the
--       floor where it waits
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

redis.call('PEXPIRE', KEYS[1], 1, 'GT') -- changes nothing: after this a full server does not refuse what follows
local vote_from, order = tonumber(ARGV[5]), tonumber(ARGV[7])
if ARGV[6] ~= '' then
  vote_from = math.max(vote_from, now_ms + ARGV[6])
  -- A writer that knows of no record writes no older one than were there, unless the clock was set back since.
  order = math.max(now_ms, order)
  -- Tokens may have been forgotten: no smaller one is granted than the clocks show when it votes again (P13).
  local floor = tonumber(unpack(redis.call('MGET', 'redquorum:floor'))) or 0
  local latest = (now_ms - 1735603200000) * 1000 -- above it would count as none (P12)
  local new = math.max(tonumber(ARGV[8]), math.min(tonumber(ARGV[9]), (vote_from - 1735689600000) * 1000))
  new = math.min(new, latest)
  if new > floor or floor > latest then
    redis.call('SET', 'redquorum:floor', string.format('%.0f', new))
  end
end
local record = string.format('%s %.0f %s %s %.0f', ARGV[2], vote_from, ARGV[3], ARGV[4], order)
redis.call('SET', KEYS[1], record)
return {record, now_us}

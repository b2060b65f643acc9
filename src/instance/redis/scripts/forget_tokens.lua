-- Removes tokens that are older than they are kept for, a few at a time (P13): below any that a clock proposes
-- from now on. That of a lock whose key is there stays for as long as the key does. Tokens that no clock can
-- have made go as well (P12).
--
-- ARGV  1 for how long tokens are kept in ms; 2 from which one on, -inf for the first
--
-- Returns where to continue, as text, or false if there is nothing more to look at.
local TOKENS = 'redquorum:fence'
local time = redis.call('TIME')
local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)
local most, gone = 128, {}
local kept_from = string.format('(%.0f', (now_ms - 1735689600000 - ARGV[1]) * 1000)
local old = redis.call('ZRANGE', TOKENS, ARGV[2], kept_from, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
for i = 1, #old, 2 do
  if not redis.pcall('GET', old[i]) then
    gone[#gone + 1] = old[i]
  end
end
local ahead_from = string.format('(%.0f', (now_ms - 1735603200000) * 1000)
for _, key in ipairs(redis.call('ZRANGE', TOKENS, ahead_from, '+inf', 'BYSCORE', 'LIMIT', 0, most)) do
  gone[#gone + 1] = key
end
if #gone > 0 then
  redis.call('ZREM', TOKENS, unpack(gone))
end
return #old == 2 * most and '(' .. old[#old]

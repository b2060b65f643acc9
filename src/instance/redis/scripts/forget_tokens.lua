-- Forgets old tokens and tombstones, a few at a time, and remembers as the floor which is the largest of them: no smaller one is granted
-- from now on, of any lock (P13). Tokens that no clock can have made go as well (P12).
--
-- ARGV  1 up to which token is forgotten by the client's clock; 2 for how long tokens are kept in us; 3 a member that is no lock's: a server
--       keeps a set with such a long one as a tree
--
-- Returns {how many tokens are left, how many of them are below the floor, how far that is behind its clock in ms}.
--
-- The clock that is behind decides: one that is ahead does not raise the floor into the future. An instance that is full may not write
-- at first but by a command that only removes: the first removes nothing.
local TOKENS, FLOOR, MOST = 'redquorum:fence', 'redquorum:floor', 256

local time = redis.call('TIME')
local now_us = (time[1] - 1735689600) * 1000000 + time[2]
local latest = (math.floor(time[1] * 1000 + time[2] / 1000) - 1735603200000) * 1000
redis.call('ZREMRANGEBYRANK', TOKENS, 1, 0)

local function number(value)
  return string.format('%.0f', value)
end

local floor = tonumber(unpack(redis.call('MGET', FLOOR))) or 0
floor = floor > latest and 0 or floor
local up_to = math.min(now_us - ARGV[2], tonumber(ARGV[1]))
if up_to > floor then
  floor = up_to
  redis.call('SET', FLOOR, number(floor))
end

local ahead = redis.call('ZCOUNT', TOKENS, '(' .. number(latest), '+inf')
if ahead > 0 then
  redis.call('ZREMRANGEBYRANK', TOKENS, -math.min(ahead, MOST), -1)
end
-- Of the lowest score is the member that is no lock's.
redis.call('ZADD', TOKENS, 0, ARGV[3])
local old = redis.call('ZCOUNT', TOKENS, '(0', number(floor))
if old > 0 then
  redis.call('ZREMRANGEBYRANK', TOKENS, 1, math.min(old, MOST))
end
return {redis.call('ZCOUNT', TOKENS, '(0', '+inf'), math.max(old - MOST, 0), math.max(math.floor((now_us - floor) / 1000), 0)}

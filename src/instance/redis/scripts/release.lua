-- Releases locks: deletes each key that has its own value, and no other (P7).
--
-- KEYS  the keys of the locks, none twice
-- ARGV  for each lock: value, token, and 'resent' if anything was sent for it more than once, else empty
--
-- Returns for each lock whether its key was deleted, as 1 or 0, or the error of a key that could not be read.
--
-- A tombstone keeps a late acquire or extend of the same lease from setting the key again (P6). It is the lease's token and a half:
-- below any other token, so a larger one of another lease stays. Where the key was found, and nothing was sent twice, nothing can
-- be late. An instance that is full takes no tombstone, and the release goes on.
local TOKENS = 'redquorum:fence'

local function bury(key, token)
  local time = redis.call('TIME')
  local latest = (math.floor(time[1] * 1000 + time[2] / 1000) - 1735603200000) * 1000
  local tombstone, stored = token + 0.5, redis.pcall('ZSCORE', TOKENS, key)
  if type(stored) == 'table' or tombstone > latest then
    return -- a token that is ahead of the clock was refused here (P12)
  end
  if not stored or tonumber(stored) < tombstone or tonumber(stored) > latest then
    redis.pcall('ZADD', TOKENS, tombstone, key)
  end
end

local replies, own = {}, {}
for i, key in ipairs(KEYS) do
  local value, token, resent = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i] ~= ''
  local found = redis.pcall('GET', key)
  if found == value then
    own[#own + 1] = key
  end
  if resent or found ~= value then
    bury(key, token)
  end
  local failed = type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true)
  replies[i] = failed and found or (found == value and 1 or 0)
end
if #own > 0 then
  redis.call('DEL', unpack(own))
end
return replies

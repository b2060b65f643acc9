-- Extends leases: lets each key that has its value live for longer, and sets it again where it is missing (P8, P10).
--
-- KEYS  the keys of the locks
-- ARGV  1, 2 see acquire.lua; 3 'repair', or empty to set nothing
--       then for each lock: value, token, ttl in ms
--
-- Nothing is done, and it returns {'not admitted', -1}, under another record (P14).
-- Else {'done', its clock in us, ms left of its quarantine, and for each lock}
--   1            extended
--   2            repaired: the key was missing
--   {'refused', ..}, 'ahead', an error: see acquire.lua
--
-- An instance in quarantine keeps what it has, and sets nothing: it may have voted for another client before it forgot (P10).
local TOKENS, LONGEST_VALUE = 'redquorum:fence', 2048

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms, left = math.floor(now_us / 1000), 0

if ARGV[1] ~= '' then
  if redis.pcall('GET', 'redquorum:admission') ~= ARGV[1] then
    return {'not admitted', -1}
  end
  left = math.max(0, math.ceil(ARGV[2] - now_us / 1000))
end

local function is_ahead(token)
  return token / 1000 > now_ms - 1735603200000
end

local function refusal(key, found, stored)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found
  end
  local value = type(found) == 'string' and string.sub(found, 1, LONGEST_VALUE)
  return {'refused', redis.call('PTTL', key), value, stored}
end

local function extend(key, value, token, ttl)
  if is_ahead(token) then
    return 'ahead'
  end
  local found, stored = redis.pcall('GET', key), redis.call('ZSCORE', TOKENS, key)
  if found == value then
    -- The end only moves forward: a late copy may ask for less (P9).
    if redis.call('PEXPIRE', key, ttl, 'GT') == 0 and redis.call('PTTL', key) == -1 then
      redis.call('PEXPIRE', key, ttl) -- its end was removed by hand
    end
  elseif found or left > 0 or ARGV[3] == '' or (stored and tonumber(stored) == token + 0.5) then
    return refusal(key, found, stored) -- P8; or the lease was released, and this is late (P6)
  else
    redis.call('SET', key, value, 'PX', ttl)
  end

  -- A later grant must find the lease's token here too (P12).
  if not stored or tonumber(stored) < tonumber(token) or is_ahead(stored) then
    redis.call('ZADD', TOKENS, token, key)
  end
  return found and 1 or 2
end

local replies = {'done', now_us, left}
for i, key in ipairs(KEYS) do
  replies[i + 3] = extend(key, ARGV[3 * i + 1], ARGV[3 * i + 2], ARGV[3 * i + 3])
end
return replies

-- Acquires locks: each that is free, or has the own value already, if its token is larger than the stored one (P1, P12).
--
-- KEYS  the keys of the locks
-- ARGV  1 the admission record that the client knows, empty if admission is off; 2 the instant in it, in ms
--       then for each lock: value, token, ttl in ms, and the mark of a writer that waits, else empty (P34)
--
-- Nothing is done, and it returns {'not admitted', ms left, -1 under another record}, if the instance may not vote (P14).
-- Else {'done', its clock in us, and for each lock}
--   1                                    granted
--   {'refused', ms left, value, token}   the key exists: -1 if it has no end, nil if it is no string, nil if there is none;
--                                        for a value 'redquorum' if it is read, or the mark of a writer that has waited longer
--   {'stale', token}                     the stored token is not smaller
--   'ahead'                              the token is more than a day ahead of the clock
--   an error                             what is under the key could not be read
--
-- Tokens are microseconds since 2025, which a double holds exactly. They are kept in one sorted set, by the lock's key (P13).
-- A day before 2025 is 1735603200000 ms. A stored token that is ahead of the clock counts as none, and is overwritten (P12).
-- The set of readers that may be under a key is described in read.lua.
local TOKENS, LONGEST_VALUE = 'redquorum:fence', 2048
local READERS, LONGEST_MARK = 'redquorum', 3000

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

if ARGV[1] ~= '' then
  if redis.pcall('GET', 'redquorum:admission') ~= ARGV[1] then
    return {'not admitted', -1}
  elseif now_us < ARGV[2] * 1000 then
    return {'not admitted', math.ceil(ARGV[2] - now_us / 1000)}
  end
end

local function is_ahead(token)
  return token / 1000 > now_ms - 1735603200000
end

-- What is too long to be a lock's value is cut: it may be megabytes of another program.
local function refusal(key, found)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found
  end
  local value = type(found) == 'string' and string.sub(found, 1, LONGEST_VALUE)
  local stored = redis.pcall('ZSCORE', TOKENS, key)
  return {'refused', redis.call('PTTL', key), value, type(stored) == 'string' and stored}
end

-- The reader or mark that refuses, in a set of readers: nothing if all have left, and no other writer has waited longer. A writer that waits leaves
-- its mark, which refuses new readers.
local function beside_readers(key, mark)
  local function number(value)
    return string.format('%.0f', value)
  end
  local readers = redis.call('ZRANGE', key, '(' .. number(now_ms), '(inf', 'BYSCORE', 'LIMIT', 0, 1)
  local marks = redis.call('ZRANGE', key, number(-now_ms - LONGEST_MARK), '(' .. number(-now_ms), 'BYSCORE')
  table.sort(marks)
  if #readers == 0 and (not marks[1] or (mark ~= '' and mark <= marks[1])) then
    return
  end
  if mark ~= '' then
    redis.call('ZADD', key, number(-now_ms - LONGEST_MARK), mark)
    redis.call('PEXPIRE', key, LONGEST_MARK, 'GT')
  end
  return readers[1] and READERS or marks[1]
end

local function acquire(key, value, token, ttl, mark)
  if is_ahead(token) then
    return 'ahead'
  end
  local found = redis.pcall('SET', key, value, 'NX', 'PX', ttl, 'GET')
  if type(found) == 'table' and redis.pcall('ZSCORE', key, READERS) == 'inf' then
    local before = beside_readers(key, mark)
    if before then
      return refusal(key, before)
    end
    redis.call('DEL', key)
    found = redis.call('SET', key, value, 'NX', 'PX', ttl, 'GET')
  end
  if found == value then
    -- The acquire is repeated with a larger token. The end only moves forward: a late copy may have a shorter ttl (P9).
    if redis.call('PEXPIRE', key, ttl, 'GT') == 0 and redis.call('PTTL', key) == -1 then
      redis.call('PEXPIRE', key, ttl) -- its end was removed by hand
    end
  elseif found then
    return refusal(key, found)
  end

  local stored = redis.call('ZSCORE', TOKENS, key)
  if stored and tonumber(stored) >= tonumber(token) and not is_ahead(stored) then
    if not found then
      redis.call('DEL', key)
    end
    return {'stale', stored}
  end
  redis.call('ZADD', TOKENS, token, key)
  return 1
end

local replies = {'done', now_us}
for i, key in ipairs(KEYS) do
  replies[i + 2] = acquire(key, ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2])
end
return replies

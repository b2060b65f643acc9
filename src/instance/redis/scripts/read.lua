-- Readers of a lock: lets them in, keeps them, and takes them out; waiting writers are taken out as well (P33, P34).
--
-- KEYS  the keys of the locks
-- ARGV  1, 2 see acquire.lua, 1 empty for 'leave'; 3 'read', 'renew' or 'leave'
--       then for each lock: the reader's value (to leave: or a writer's mark), ttl in ms
--
-- Nothing is done, and it returns {'not admitted', ms left, -1 under another record}, if the instance may not vote (P14); in
-- quarantine it renews what is there (P10). Else {'done', its clock in us, ms left of its quarantine, and for each lock}
--   1            it reads, or has left
--   2            renewed: it was missing, and reads again (P10)
--   0            it had left, or was never there
--   {'refused', ms left, value, nil}   what refuses, see acquire.lua: a value, a writer's mark, nil if a reader is just gone
--   an error     what is under the key could not be read
--
-- Under the key is a sorted set. Its members are the readers' values, with their ends by this clock in ms as scores; marks of writers that
-- wait, 'writer <ticket> <client>', with their ends below zero; and 'redquorum', inf: a set without that is another program's, and stays
-- as it is. The key ends with the last of them, and is deleted when only 'redquorum' is left.
--
-- A full instance lets in no reader, and keeps those that it has: see acquire.lua.
local READERS, LONGEST_MARK, LONGEST_VALUE = 'redquorum', 3000, 2048

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms, left, what = math.floor(now_us / 1000), 0, ARGV[3]

if ARGV[1] ~= '' then
  if redis.pcall('GET', 'redquorum:admission') ~= ARGV[1] then
    return {'not admitted', -1}
  end
  left = math.max(0, math.ceil(ARGV[2] - now_us / 1000))
  if what == 'read' and left > 0 then
    return {'not admitted', left}
  end
end

local function number(value)
  return string.format('%.0f', value)
end

local function is_ours(key)
  return redis.pcall('ZSCORE', key, READERS) == 'inf'
end

-- The oldest writer that waits. One whose end is too far away is not believed: it would keep readers out for as long.
local function first_mark(key)
  local marks = redis.call('ZRANGE', key, number(-now_ms - LONGEST_MARK), '(' .. number(-now_ms), 'BYSCORE')
  table.sort(marks)
  return marks[1]
end

-- Removes what has ended, and gives the key the end of what is left.
local function settle(key)
  local over = redis.call('ZRANGE', key, number(-now_ms), number(now_ms), 'BYSCORE', 'LIMIT', 0, 1000)
  if #over > 0 then
    redis.call('ZREM', key, unpack(over))
  end
  local mark, reader = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES'), redis.call('ZRANGE', key, -2, -2, 'WITHSCORES')
  local last = math.max(math.min(-mark[2], now_ms + LONGEST_MARK), reader[2] or 0)
  if last > now_ms then
    redis.call('PEXPIRE', key, number(last - now_ms))
  else
    redis.call('DEL', key)
  end
end

-- After the PEXPIRE a full server does not refuse the ZADD; and where that right is missing, nothing is set without an end.
local function add(key, value, ttl, is_new)
  redis.call('PEXPIRE', key, ttl, 'GT')
  redis.call('ZADD', key, 'GT', 'inf', READERS, number(now_ms + ttl), value)
  if is_new then
    redis.call('PEXPIRE', key, ttl)
  else
    settle(key)
  end
end

local function refusal(key, found)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found
  end
  local value = type(found) == 'string' and string.sub(found, 1, LONGEST_VALUE)
  return {'refused', redis.call('PTTL', key), value, false}
end

local function read(key, value, ttl)
  local ours = is_ours(key)
  if not ours and redis.call('PTTL', key) ~= -2 then
    return refusal(key, redis.pcall('GET', key))
  end
  local ends = ours and redis.call('ZSCORE', key, value)
  local is_there = ends and tonumber(ends) > now_ms
  if what == 'renew' and not is_there and left > 0 then
    return refusal(key, false) -- it may have voted for a writer before it forgot (P10)
  end
  local mark = ours and first_mark(key)
  if what == 'read' and not is_there and mark then
    return refusal(key, mark) -- P34
  end
  local may_add = what == 'renew' or redis.pcall('ZADD', key, 'XX', 'inf', READERS) -- changes nothing, and is refused if it is full
  if type(may_add) == 'table' then
    return may_add
  end
  add(key, value, ttl, not ours)
  return what == 'renew' and not is_there and 2 or 1
end

-- Behind the last reader the writer is woken that has waited longest.
local function leave(key, value)
  if not is_ours(key) or redis.call('ZREM', key, value) == 0 then
    return 0
  end
  local mark = first_mark(key)
  if mark and #key <= 1024 and #redis.call('ZRANGE', key, '(' .. number(now_ms), '(inf', 'BYSCORE', 'LIMIT', 0, 1) == 0 then
    redis.pcall('PUBLISH', 'redquorum:wake:' .. string.sub(mark, -12), string.format('n00%04x', #key) .. key)
  end
  settle(key)
  return 1
end

local replies = {'done', now_us, left}
for i, key in ipairs(KEYS) do
  local value, ttl = ARGV[2 * i + 2], ARGV[2 * i + 3]
  replies[i + 3] = what == 'leave' and leave(key, value) or read(key, value, ttl)
end
return replies

-- Says what stands in the way of the resource at `index`, counted from 0: how long it lives in ms
-- (-1 for ever), its value (nil if it is no string) and the resource's fencing token (nil if none).
-- What is longer than any that this library stores is cut: it may be megabytes of another program.
-- An error that is not about the key (a full instance, a replica, a denied command) is none, and
-- the script ends with it.
local function refusal(first, index, other)
  if type(other) == 'table' and not string.find(other.err, 'WRONGTYPE', 1, true) then
    return other
  end
  local value = type(other) == 'string' and string.sub(other, 1, 2048)
  local stored = redis.pcall('ZSCORE', TOKENS, KEYS[first + index])
  stored = type(stored) == 'string' and stored
  return {'refused', index, redis.call('PTTL', KEYS[first + index]), value, stored}
end

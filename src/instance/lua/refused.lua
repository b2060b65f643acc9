-- Says what stands in the way of the resource at `index`, counted from 0: how long it lives in ms
-- (-1 for ever), its value (nil if it is no string) and the resource's fencing token (nil if none).
-- An error that is not about the key (a full instance, a replica, a denied command) is none, and
-- the script ends with it.
local function refused(first, count, index, other)
  if type(other) == 'table' and not string.find(other.err, 'WRONGTYPE', 1, true) then
    return other
  end
  local value = type(other) == 'string' and other
  local stored = redis.pcall('GET', KEYS[first + count + index])
  return {'refused', index, redis.call('PTTL', KEYS[first + index]), value, type(stored) == 'string' and stored}
end

-- Says what stands in the way of the resource at `index`, counted from 0: how long it lives in ms
-- (-1 for ever), its value (nil if it is no string) and the resource's fencing token (nil if none).
-- What is longer than any that this library stores is cut: it may be megabytes of another program.
-- An error that is not about the key is none, see failure.lua.
local function refusal(first, index, other)
  if failure(other) then
    return other
  end
  local value = type(other) == 'string' and string.sub(other, 1, 2048)
  local stored = redis.pcall('ZSCORE', TOKENS, KEYS[first + index])
  stored = type(stored) == 'string' and stored
  return {'refused', index, redis.call('PTTL', KEYS[first + index]), value, stored}
end

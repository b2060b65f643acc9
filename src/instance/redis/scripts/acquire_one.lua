-- The usual acquire without a detour: one resource that is free, and a token that is larger than the
-- stored one. Gives when the lock expires, in ms of the instance's clock, if it is granted; anything
-- else is put back and left to acquire.lua. `expires` is empty where it must be asked for: that tells
-- the clock, and is cheaper than to ask for the time.
local function acquire_one(key, value, ttl, token, expires)
  if set_if_free(key, value, ttl) then
    return false
  end
  expires = expires or redis.call('PEXPIRETIME', key)
  if not is_ahead(token, expires - ttl) and redis.call('ZADD', TOKENS, 'GT', 'CH', token, key) == 1 then
    return expires
  end
  redis.call('DEL', key)
  return false
end

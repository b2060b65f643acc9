-- The usual acquire without a detour: one resource that is free, and a token that is larger than the
-- stored one. Gives when the lock expires, in ms of the instance's clock, if it is granted; anything
-- else is put back and left to acquire.lua. `expires` is empty where it must be asked for: that tells
-- the clock, and is cheaper than to ask for the time.
local function acquire_one(key, fence, value, ttl, token, retention, expires)
  if set_if_free(key, value, ttl) then
    return false
  end
  expires = expires or redis.call('PEXPIRETIME', key)
  if not is_ahead(token, expires - ttl) then
    local stored = redis.call('SET', fence, token, 'PX', retention, 'GET')
    if not stored or stored < token then
      return expires
    end
    redis.call('SET', fence, stored, 'PX', retention)
  end
  redis.call('DEL', key)
  return false
end

-- The usual acquire without a detour: one resource that is free, and a token that is larger than the
-- stored one. Gives true if it is granted; anything else is put back and left to acquire.lua.
local function acquire_one(key, fence, value, ttl, token, retention)
  if claim(key, value, ttl) then
    return false
  end
  local stored = redis.call('SET', fence, token, 'PX', retention, 'GET')
  if not stored or stored < token then
    return true
  end
  redis.call('SET', fence, stored, 'PX', retention)
  redis.call('DEL', key)
  return false
end

-- As set_if_free.lua, for servers before 7.0, which do not take NX and GET together.
local function set_if_free(key, value, ttl)
  local other = redis.pcall('GET', key)
  if not other then
    redis.call('SET', key, value, 'PX', ttl)
  end
  return other
end

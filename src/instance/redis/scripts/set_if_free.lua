-- Sets a lock key if it is free. Returns what stands in the way: false if nothing did and the key is
-- set now, the value, or an error if the key is no string.
local function set_if_free(key, value, ttl)
  return redis.pcall('SET', key, value, 'NX', 'PX', ttl, 'GET')
end

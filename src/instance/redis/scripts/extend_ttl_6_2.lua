-- As extend_ttl.lua, for servers before 7.0, which do not know GT.
local function extend_ttl(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- As prolong.lua, for servers before 7.0, which do not know GT.
local function prolong(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end

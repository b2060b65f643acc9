-- The usual case without a detour: one resource that is free, and a token that is larger than the
-- stored one. Anything else is put back and left to acquire.lua.
if left == 0 and #KEYS == 2 then
  local other = redis.pcall('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4], 'GET')
  if not other then
    local stored = redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6], 'GET')
    if not stored or stored < ARGV[5] then
      return {'granted', now_us}
    end
    redis.call('SET', KEYS[2], stored, 'PX', ARGV[6])
    redis.call('DEL', KEYS[1])
  end
end

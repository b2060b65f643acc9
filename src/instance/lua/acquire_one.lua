-- The usual case without a detour: one resource that is free, a token that is larger than the
-- stored one, and an instance that is known to be past its quarantine. Anything else is put back
-- and left to acquire.lua.
--
-- Gives when the lock expires, in ms of the instance's clock, which with the ttl tells its clock
-- (P17): asking for that alone takes twice as long. 'granted' if admission is off.
if left == 0 and ARGV[2] == '' and #KEYS == 2 then
  local other = redis.pcall('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4], 'GET')
  if not other then
    local stored = redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6], 'GET')
    if not stored or stored < ARGV[5] then
      return ARGV[1] == '' and 'granted' or redis.call('PEXPIRETIME', KEYS[1])
    end
    redis.call('SET', KEYS[2], stored, 'PX', ARGV[6])
    redis.call('DEL', KEYS[1])
  end
end

-- Extends many leases with one resource each: the usual case of extend.lua, for a batch of them.
--
-- KEYS  the lock keys
-- ARGV  1, 2 see admission.lua; 3 ttl in ms; then the value of each lease
--
-- Returns one of
--   {'renewed', clock in us, ..}   then the places, from 1, of those that do not hold their value;
--                                  they are left as they are, extend.lua sees to them
--   {'not admitted', ms left}      see admission.lua
if left ~= 0 then
  return {'not admitted', left} -- P10
end
local reply, ttl = {'renewed', now_us}, ARGV[3]
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[i + 3] then
    extend_ttl(KEYS[i], ttl)
  else
    reply[#reply + 1] = i
  end
end
return reply

-- The usual acquire, alone in its command, on an instance that is known to be past its quarantine.
--
-- Returns when the lock expires, in ms of the instance's clock: less the ttl, that is its clock (P17).
if left == 0 and ARGV[2] == '' and #KEYS == 1 then
  local expires = acquire_one(KEYS[1], ARGV[3], ARGV[4], ARGV[5])
  if expires then
    return expires
  end
end

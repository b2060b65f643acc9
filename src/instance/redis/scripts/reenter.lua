-- Lets a holder into the lease that it has (P23): an extend that also takes a larger token, for
-- every resource or for none. So the lease counts as granted after all that were granted meanwhile.
--
-- Keys, units and replies as in extend.lua, and also
--   {'stale', stored token}     the largest; nothing is changed
local function reenter(first, count, value, ttl, token, tombstone, retention)
  if left ~= 0 then
    return {'not admitted', left}
  end
  local fence, largest = first + count, nil
  for i = 0, count - 1 do
    local stored = redis.call('GET', KEYS[fence + i])
    if stored and stored >= token and is_valid_token(stored, now_ms) and not (largest and largest >= stored) then
      largest = stored
    end
  end
  if largest then
    return {'stale', largest} -- P12
  end

  local reply = extend(first, count, value, ttl, token, tombstone, retention)
  if reply[1] == 'granted' or reply[1] == 'repaired' then
    for i = 0, count - 1 do
      redis.call('SET', KEYS[fence + i], token, 'PX', retention)
    end
  end
  return reply
end

-- Acquires every resource of a round on this instance, or none of them (P1, P11, P12).
--
-- The lock keys are KEYS[first] and the next count - 1, the fence keys follow in the same order.
-- Durations are in ms, the token has 19 digits. Gives one of
--   {'granted', clock in us}
--   {'not admitted', ms left}   see admission.lua
--   {'refused', ..}             see refused.lua
--   {'stale', stored token}     the largest
local function acquire(first, count, value, ttl, token, retention)
  if left ~= 0 then
    return {'not admitted', left} -- P14
  end
  local fence = first + count
  local taken = {}

  for i = 0, count - 1 do
    local other = claim(KEYS[first + i], value, ttl)
    if not other then
      taken[#taken + 1] = KEYS[first + i]
    elseif other == value then
      -- P12: the round's own key counts as free; a repeat with a larger token must pass.
      prolong(KEYS[first + i], ttl)
    else
      if #taken > 0 then
        redis.call('DEL', unpack(taken)) -- P11
      end
      return refused(first, count, i, other)
    end
  end

  for i = 0, count - 1 do
    -- P12: only a larger token. As text: numbers are doubles here and lose the low digits (P13).
    local stored = redis.call('SET', KEYS[fence + i], token, 'PX', retention, 'GET')
    if stored and stored >= token then
      redis.call('SET', KEYS[fence + i], stored, 'PX', retention)
      for j = i + 1, count - 1 do
        local later = redis.call('GET', KEYS[fence + j])
        if later and later > stored then
          stored = later
        end
      end
      if #taken > 0 then
        redis.call('DEL', unpack(taken))
      end
      return {'stale', stored}
    end
  end

  return {'granted', now_us}
end

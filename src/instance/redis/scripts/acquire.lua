-- Acquires every resource of a round on this instance, or none of them (P1, P11, P12, P23).
--
-- The lock keys are KEYS[first] and the next count - 1, the fence keys follow in the same order.
-- Durations are in ms, the token has 19 digits; `holder` is how the values of the same holder begin,
-- empty if it gave no identity. Returns one of
--   {'granted', clock in us}
--   {'not admitted', ms left}   see admission.lua
--   {'refused', ..}             see refusal.lua
--   {'stale', stored token}     the largest
--   {'ahead', clock in us}      see token_limit.lua
local function acquire(first, count, value, ttl, token, retention, holder)
  if left ~= 0 then
    return {'not admitted', left} -- P14
  end
  if is_ahead(token, now_ms) then
    return {'ahead', now_us} -- P12: it would stand in the way of everybody
  end
  local fence = first + count
  local taken, formers, reserved = {}, nil, nil

  for i = 0, count - 1 do
    local key = KEYS[first + i]
    local other = set_if_free(key, value, ttl)
    if not other then
      taken[#taken + 1] = key
    elseif other == value then
      extend_ttl(key, ttl) -- P12: the round's own key counts as free; a repeat with a larger token must pass
    elseif holder ~= '' and type(other) == 'string' and string.sub(other, 1, #holder) == holder then
      -- P23: the same holder comes back, perhaps in another process, and goes on under the new value.
      formers = formers or {}
      formers[key] = other
    elseif other == reservation_for(value) then
      reserved = reserved or {}
      reserved[#reserved + 1] = key -- P26: to this client it is free
    else
      roll_back(taken)
      return refusal(first, count, i, other)
    end
  end

  for i = 0, count - 1 do
    -- P12: only a larger token. As text: numbers are doubles here and lose the low digits (P13).
    local stored = redis.call('SET', KEYS[fence + i], token, 'PX', retention, 'GET')
    if stored and stored >= token and is_valid_token(stored, now_ms) then
      redis.call('SET', KEYS[fence + i], stored, 'PX', retention)
      for j = i + 1, count - 1 do
        local later = redis.call('GET', KEYS[fence + j])
        if later and later > stored and is_valid_token(later, now_ms) then
          stored = later
        end
      end
      roll_back(taken)
      return {'stale', stored}
    end
  end

  -- Last: a try that is refused leaves what the holder has as it is.
  for key, former in pairs(formers or {}) do
    take_over(key, value, ttl, former)
  end
  for _, key in ipairs(reserved or {}) do
    redis.call('SET', key, value, 'PX', ttl)
  end

  return {'granted', now_us}
end

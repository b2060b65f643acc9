-- Acquires every resource of a round on this instance, or none of them (P1, P11, P12).
--
-- The lock keys are KEYS[first] and the next count - 1. Durations are in ms, tokens in microseconds since 2025
-- (see tokens.lua). Returns one of
--   {'granted', clock in us}
--   {'not admitted', ms left}   see admission.lua
--   {'refused', ..}             see refusal.lua
--   {'stale', stored token}     the largest
--   {'ahead', clock in us}      see token_limit.lua
local function acquire(first, count, value, ttl, token)
  if left ~= 0 then
    return {'not admitted', left} -- P14
  end
  if is_ahead(token, now_ms) then
    return {'ahead', now_us} -- P12: it would stand in the way of everybody
  end
  local taken, reserved = {}, nil
  -- Undoes what was set so far (P11).
  local function roll_back()
    if #taken > 0 then
      redis.call('DEL', unpack(taken))
    end
  end

  for i = 0, count - 1 do
    local key = KEYS[first + i]
    local other = set_if_free(key, value, ttl)
    if not other then
      taken[#taken + 1] = key
    elseif other == value then
      extend_ttl(key, ttl) -- P12: the round's own key counts as free; a repeat with a larger token must pass
    elseif other == reservation_for(value) then
      reserved = reserved or {}
      reserved[#reserved + 1] = key -- P26: to this client it is free
    else
      roll_back()
      return refusal(first, i, other)
    end
  end

  local stored = larger_token(first, count, token)
  if stored then
    roll_back()
    return {'stale', stored} -- P12: only a larger token
  end
  store_token(first, count, token)

  for _, key in ipairs(reserved or {}) do
    redis.call('SET', key, value, 'PX', ttl)
  end

  return {'granted', now_us}
end

-- Extends every resource of a lease on this instance and repairs what is missing (P8, P10, P11).
--
-- Keys and units as in acquire.lua. Returns one of
--   {'granted', clock in us}
--   {'repaired', clock in us}   a key was missing until now
--   {'not admitted', ms left}   see admission.lua
--   {'refused', ..}             see refusal.lua
--   {'ahead', clock in us}      see token_limit.lua
local function extend(first, count, value, ttl, token)
  -- P10: no vote, not even for a key that is there. It may have come back from disk; that an instance in
  -- quarantine gives no vote has no exception, which would need an argument of its own.
  if left ~= 0 then
    return {'not admitted', left}
  end
  if is_ahead(token, now_ms) then
    return {'ahead', now_us} -- P12
  end
  local missing = {}

  for i = 0, count - 1 do
    local other = redis.pcall('GET', KEYS[first + i])
    if not other then
      missing[#missing + 1] = i
    elseif other ~= value then
      return refusal(first, i, other) -- P8: nothing is changed
    end
  end

  for _, i in ipairs(missing) do
    local stored = redis.call('ZSCORE', TOKENS, KEYS[first + i])
    if stored and tonumber(stored) == token + 0.5 then
      return refusal(first, i, false) -- P6: the lease was released, this extend is late
    end
  end

  for i = 0, count - 1 do
    extend_ttl(KEYS[first + i], ttl)
  end

  -- P10: the instance was down, restarted or late; the lease takes its place here again.
  for _, i in ipairs(missing) do
    redis.call('SET', KEYS[first + i], value, 'PX', ttl)
  end

  -- P12: a later grant must find this lease's token here too, or the larger one of a failed try.
  for i = 0, count - 1 do
    raise_token(redis.call, KEYS[first + i], token, now_ms)
  end

  return {#missing == 0 and 'granted' or 'repaired', now_us}
end

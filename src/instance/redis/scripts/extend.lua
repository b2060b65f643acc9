-- Extends every resource of a lease on this instance and repairs what is missing (P8, P10, P11).
--
-- Keys and units as in acquire.lua; `tombstone` is what this lease's release leaves, see tombstone.lua. Returns
-- one of
--   {'granted', clock in us}
--   {'repaired', clock in us}   a key was missing until now
--   {'not admitted', ms left}   see admission.lua
--   {'refused', ..}             see refusal.lua
--   {'ahead', clock in us}      see token_limit.lua
local function extend(first, count, value, ttl, token, tombstone, retention)
  -- P10: no vote, not even for a key that is there. It may have come back from disk, and would be
  -- gone for good with a flush that a process which is young enough survives as a voter.
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
      return refusal(first, count, i, other) -- P8: nothing is changed
    end
  end

  local stored = {}
  for _, i in ipairs(missing) do
    stored[i] = redis.call('GET', KEYS[first + count + i])
    if stored[i] == tombstone then
      return refusal(first, count, i, false) -- P6: the lease was released, this extend is late
    end
  end

  for i = 0, count - 1 do
    extend_ttl(KEYS[first + i], ttl)
  end

  -- P10: the instance was down, restarted or late; the lease takes its place here again.
  for _, i in ipairs(missing) do
    redis.call('SET', KEYS[first + i], value, 'PX', ttl)
    -- P12: a later grant must find this lease's token here too, or the larger one of a failed try.
    if not stored[i] or stored[i] < token or not is_valid_token(stored[i], now_ms) then
      redis.call('SET', KEYS[first + count + i], token, 'PX', retention)
    end
  end

  -- P13: a token must not expire before its lease.
  for i = 0, count - 1 do
    local fence = KEYS[first + count + i]
    if redis.call('PEXPIRE', fence, retention) == 0 then
      redis.call('SET', fence, token, 'PX', retention)
    end
  end

  return {#missing == 0 and 'granted' or 'repaired', now_us}
end

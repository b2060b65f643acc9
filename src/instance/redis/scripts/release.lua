-- Deletes the round's own keys on this instance, and nobody else's (P7).
--
-- Keys and units as in acquire.lua; `resent` is true if the acquire was
-- repeated or an extend was ever sent.
-- Returns how many keys were deleted, or the error of a key that could not be looked at: then it is not known
-- whether that one is left.
local function release(first, count, value, token, resent)
  local released, failed = 0, nil

  for i = 0, count - 1 do
    local key = KEYS[first + i]
    local found = redis.pcall('GET', key)
    local own = found == value
    failed = failed or failure(found)
    if own then
      redis.call('DEL', key)
      released = released + 1
    end
    -- P6: where the key was found, the acquire is behind it; only a repeat or an extend may still come.
    if resent or not own then
      set_tombstone(key, token)
    end
  end

  return failed or released
end

-- Deletes the round's own keys on this instance, and nobody else's (P7).
--
-- Keys and units as in acquire.lua; `closed` see mark.lua; `resent` is true if the acquire was
-- repeated or an extend was ever sent. Gives how many keys were deleted.
local function release(first, count, value, closed, retention, resent)
  local deleted = 0

  for i = 0, count - 1 do
    local own = redis.pcall('GET', KEYS[first + i]) == value
    if own then
      deleted = deleted + redis.call('DEL', KEYS[first + i])
    end
    -- P6: where the key was found, the acquire is behind it; only a repeat or an extend may still come.
    if resent or not own then
      mark(KEYS[first + count + i], closed, retention)
    end
  end

  return deleted
end

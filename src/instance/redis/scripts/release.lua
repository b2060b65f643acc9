-- Deletes the round's own keys on this instance, and nobody else's (P7).
--
-- Keys and units as in acquire.lua; `resent` is true if the acquire was
-- repeated or an extend was ever sent. For the round of a holder, `taken_over` says what becomes of that
-- which it took over: `forget` it, for the round was won, or `give back` (P23); else it is nil.
-- Returns how many keys were deleted or given back, or the error of a key that could not be looked at: then it is not known
-- whether that one is left.
local function release(first, count, value, token, resent, taken_over)
  local released, failed = 0, nil

  for i = 0, count - 1 do
    local key = KEYS[first + i]
    local found = redis.pcall('GET', key)
    local own = found == value
    failed = failed or failure(found)
    if taken_over then
      own = leave_chain(key, key, value, taken_over == 'forget')
    elseif own then
      redis.call('DEL', key)
    end
    if own then
      released = released + 1
    end
    -- P6: where the key was found, the acquire is behind it; only a repeat or an extend may still come.
    if resent or not own then
      set_tombstone(key, token)
    end
  end

  return failed or released
end

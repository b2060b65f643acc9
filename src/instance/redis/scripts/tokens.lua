-- The fencing tokens of all locks on this instance: one sorted set, from a lock's key to the largest token,
-- in microseconds since 2025 (P13). A half is added where a lease was released, see tombstone.lua. One that is
-- ahead of the clock counts as if there were none, and is overwritten (P12).
local TOKENS = 'redquorum:fence'

-- Stores a token for a key unless a larger one counts. `call` is redis.call, or redis.pcall where the
-- script goes on without.
local function raise_token(call, key, token, now_ms)
  if call('ZADD', TOKENS, 'GT', 'CH', token, key) == 0 then
    local stored = call('ZSCORE', TOKENS, key)
    if type(stored) == 'string' and is_ahead(stored, now_ms) then
      call('ZADD', TOKENS, token, key)
    end
  end
end

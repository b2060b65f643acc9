-- Lets a key of the round live for `ttl` ms from now, and never for less than it already would: a copy
-- that is late may ask for a shorter time than one that overtook it over another connection (P9).
local function extend_ttl(key, ttl)
  if redis.call('PEXPIRE', key, ttl, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, ttl) -- a key without an end counts as the longest
  end
end

-- Lets a holder into the lease that it has (P23): an extend that also takes a larger token, for
-- every resource or for none. So the lease counts as granted after all that were granted meanwhile.
--
-- Keys, units and replies as in extend.lua, and also
--   {'stale', stored token}     the largest; nothing is changed
local function reenter(first, count, value, ttl, token)
  if left ~= 0 then
    return {'not admitted', left}
  end
  local stored = larger_token(first, count, token)
  if stored then
    return {'stale', stored} -- P12
  end
  return extend(first, count, value, ttl, token) -- which stores the token, as it is the largest
end

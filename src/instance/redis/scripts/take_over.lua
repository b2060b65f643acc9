-- Whether the same holder put this under a key, in this try or in another one (P23). The whole form is looked at, as a
-- short holder may by chance be how the random value of another library begins.
local function is_of_holder(other, holder)
  return holder ~= '' and type(other) == 'string' and string.sub(other, 1, #holder) == holder
    and string.match(string.sub(other, #holder + 1), '^' .. string.rep('%x', 32) .. ':') ~= nil
end

-- Puts `value` in the place of what the same holder has under a key, and keeps that behind it for as long
-- as it would have lived (P23). The key ends no sooner than it would have: what it stood for may
-- still be valid. What never ends is kept for a ttl.
local function take_over(key, value, ttl, former)
  leave_chain(former_key(key, former), key, value, false) -- an earlier copy that was taken over since
  local left = redis.call('PTTL', key)
  if left < 0 then
    left = tonumber(ttl)
  end
  redis.call('SET', former_key(key, value), former, 'PX', math.max(left, 1))
  redis.call('SET', key, value, 'PX', math.max(left, ttl))
end

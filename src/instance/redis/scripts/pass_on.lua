-- Gives up a key that holds `value`, or is free where `value` is false (P26): keeps it, for `grace` ms, for the first
-- of the clients in `successors` that hears `message` through this instance, or deletes it. Returns whether it was
-- there, or is kept now, as 1 or 0, or the error where it could not be looked at. (pcall: where the instance is full or a right is missing the key is deleted.)
local function give_up(key, value, successors, grace, message)
  local found = redis.pcall('GET', key)
  if found ~= value then
    return failure(found) or 0
  end
  for successor in string.gmatch(successors, '%x+') do
    local heard = redis.pcall('PUBLISH', 'redquorum:wake:' .. successor, message)
    if type(heard) == 'number' and heard > 0 then
      local set = redis.pcall('SET', key, ':next:' .. successor, 'PX', grace)
      if not set.err then
        return 1
      end
      break
    end
  end
  return redis.call('DEL', key)
end

-- A release that names its successors: as release.lua for one resource, but that it gives the key up to them.
local function pass_on(first, value, token, resent, successors, grace, message)
  local released = give_up(KEYS[first], value, successors, grace, message)
  if resent or released ~= 1 then
    set_tombstone(KEYS[first], token) -- P6
  end
  return released
end
